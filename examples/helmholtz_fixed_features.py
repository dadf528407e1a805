"""The lower level alone: how the least-squares problem is solved decides how accurate the answer is.

Helmholtz on a square, u_xx + u_yy + u = f. The basis is fixed: Fourier features on a network that is never trained.
What is left is a linear least-squares problem for the coefficients, solved here in two ways on the same rows:

- Ridge(1e-6), as in the paper: normal equations, which square the condition number, plus a small gamma against that;
- LeastSquares(): an orthogonal factorisation of the rows themselves, whose condition number is never squared.
"""

from ifef import LeastSquares, Ridge, fit, fourier_features, problems

problem = problems.helmholtz(a1=1, a2=4)  # u = sin(pi x) sin(4 pi y) on [-1, 1]^2; only .error() looks at it


def main(seed: int = 0) -> float:
    """Solve twice with the same basis and points, and give the error of the least-squares solve."""
    # psi(x) = [cos(2 pi B h(x)), sin(2 pi B h(x)), h, x, 1] with D = 400 rows in B, B ~ N(0, sigma^2), and h an
    # untrained tanh network with hidden layers of 50, 50 and 20.
    features = fourier_features(problem, 400, sigma=2.0, backbone=(50, 50, 20), seed=seed)
    points = problem.sample({"equation": 2000, "walls": 400}, seed=seed)

    ridge = fit(problem, features, points, lower=Ridge(1e-6), seed=seed)
    least = fit(problem, features, points, lower=LeastSquares(), seed=seed)

    for name, solution in (("Ridge(1e-6)", ridge), ("LeastSquares()", least)):
        print(f"{name:15} relative error {solution.error():.1e}   estimated {solution.error_estimate:.1e}")
    return least.error()


if __name__ == "__main__":
    main()
