"""The statistics of runs: unbiased estimates, intervals, and what is more than noise.

Rows are the units that are drawn at random; the attempts at one row belong together. Everything
that draws does so from a fixed seed: the same outcomes always give the same numbers.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

type Interval = tuple[float, float]

_CONFIDENCE = 0.95
_RESAMPLES = 1000
_FLIPS = 10_000
# Rewards may all be different, and each difference then costs a draw of its own.
_MAX_DRAWS = 5_000_000


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the chance that at least one of `k` attempts passes, estimated without bias.

    That is 1 - C(n - c, k) / C(n, k) for n attempts of which c passed (Chen et al., 2021,
    arXiv:2107.03374).

    Raises:
        ValueError: not 1 <= k <= attempts, or not 0 <= passed <= attempts.
    """
    if not (1 <= k <= attempts and 0 <= passed <= attempts):
        msg = f"pass@{k} needs 1 <= k <= attempts and 0 <= passed <= attempts"
        raise ValueError(msg)
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def distribution(values: Sequence[float]) -> dict[str, float] | None:
    """Return mean, standard deviation and quantiles; None where there are no values."""
    if not values:
        return None
    cuts = [values[0]] * 19
    if len(values) > 1:
        cuts = statistics.quantiles(values, n=20, method="inclusive")
    return {
        "mean": float(statistics.mean(values)),
        "std": statistics.pstdev(values),
        "min": min(values),
        "p05": cuts[0],
        "p25": cuts[4],
        "p50": cuts[9],
        "p75": cuts[14],
        "p95": cuts[18],
        "max": max(values),
    }


def interval[T: Hashable](
    rows: Iterable[T], statistic: Callable[[Mapping[T, int]], float]
) -> Interval | None:
    """Return the 95 % bootstrap interval of a number, or None without rows.

    Args:
        rows: What each row contributed.
        statistic: The number, from how often each contribution was drawn; it need not be defined
            for draws of nothing.
    """
    counts = Counter(rows)
    if not counts:
        return None
    draw = random.Random(0)
    resamples = max(100, min(_RESAMPLES, _MAX_DRAWS // len(counts)))
    values = sorted(statistic(_drawn(counts, draw)) for _ in range(resamples))
    tail = (1 - _CONFIDENCE) / 2
    return values[math.floor(tail * resamples)], values[math.ceil((1 - tail) * resamples) - 1]


def mean_of(counts: Mapping[float, int]) -> float:
    """Return the mean of numbers, from how often each is there."""
    return math.fsum(value * count for value, count in counts.items()) / sum(counts.values())


def chance_of_difference(differences: Iterable[float]) -> float:
    """Return how likely paired rows differ as much as this, on the whole, by chance alone.

    A sign-flip test, two-sided: without a true difference each row's one would have come with the
    other sign as easily. Exact where all differences have one size, which makes it McNemar's test;
    else over 10,000 random choices of signs, or fewer for very many sizes.
    """
    values = list(differences)
    sizes = Counter(abs(value) for value in values if value)
    observed = abs(math.fsum(values))
    if not sizes:
        return 1.0
    if len(sizes) == 1:
        [(size, count)] = sizes.items()
        return _two_sided_sign_test(count, round(observed / size))
    draw = random.Random(0)
    flips = max(1000, min(_FLIPS, _MAX_DRAWS // len(sizes)))
    # Sums of the same numbers in another order may differ in their last digits.
    bound = observed * (1 - 1e-9)
    as_far = sum(abs(_flipped(sizes, draw)) >= bound for _ in range(flips))
    return (as_far + 1) / (flips + 1)


def _two_sided_sign_test(count: int, surplus: int) -> float:
    if surplus == 0:
        return 1.0
    tail = sum(math.comb(count, more) for more in range((count + surplus + 1) // 2, count + 1))
    # Two whole numbers, since floats end long before such powers do.
    return min(1.0, 2 * tail / (1 << count))


def _flipped(sizes: Mapping[float, int], draw: random.Random) -> float:
    return math.fsum(
        size * (2 * draw.binomialvariate(count, 0.5) - count) for size, count in sizes.items()
    )


def _drawn[T](counts: Mapping[T, int], draw: random.Random) -> dict[T, int]:
    """Draw as many as there are, with replacement; cheap, however often each value is there."""
    left, population = sum(counts.values()), sum(counts.values())
    drawn: dict[T, int] = {}
    for value, count in counts.items():
        share = 1.0 if count == population else count / population
        drawn[value] = draw.binomialvariate(left, share)
        left, population = left - drawn[value], population - count
    return drawn
