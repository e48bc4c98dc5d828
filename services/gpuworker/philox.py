"""Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

There is no state to keep, move or restore: a number is a function of its key and its counter. That is why a token
does not change with what shares its batch, nor when its sequence is preempted or moved to another worker.
"""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]  # values of 32 bits, in 64 bits so that products do not overflow

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_INCREMENTS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counter: Words, key: Words) -> Words:
    """Four random words for each row: ``counter`` [4, n] and ``key`` [2, n] give [4, n]."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_INCREMENTS[0]) & _LOW, (k1 + _KEY_INCREMENTS[1]) & _LOW
    return np.stack((c0, c1, c2, c3))


def uniform(seeds: Words, choice_indexes: Words, positions: Words) -> npt.NDArray[np.float64]:
    """One number in [0, 1) with 52 random bits for each row; all arguments and the result are [n].

    The seed (64 bits) is the key; position and choice index are the first two words of the counter.
    """
    zeros = np.zeros_like(positions)
    words = philox4x32(np.stack((positions, choice_indexes, zeros, zeros)), np.stack((seeds & _LOW, seeds >> _SHIFT)))
    high, low = words[0], words[1] >> np.uint64(12)  # 32 and 20 bits
    numbers: npt.NDArray[np.float64] = ((high << np.uint64(20)) | low).astype(np.float64) * 2.0**-52
    return numbers
