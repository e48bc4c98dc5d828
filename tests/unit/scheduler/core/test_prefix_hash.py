"""Equal hashes mean equal KV, and nothing else does."""

from dataclasses import replace

import pytest

from scheduler.core.prefix_hash import HASH_BYTES, PrefixDomain, PrefixHasher

DOMAIN = PrefixDomain(b"model", adapter="a", tenant_salt=b"s", deployment_seed=b"d")


def hashes(token_ids: list[int], domain: PrefixDomain = DOMAIN, block_size: int = 4) -> list[bytes]:
    chain = bytearray()
    PrefixHasher(domain, block_size).extend(chain, token_ids)
    return [bytes(chain[i : i + HASH_BYTES]) for i in range(0, len(chain), HASH_BYTES)]


def test_only_full_blocks_have_a_hash():
    assert [len(hashes(list(range(n)))) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_a_chain_extended_later_equals_one_made_at_once():
    hasher, chain = PrefixHasher(DOMAIN, 4), bytearray()
    for n in range(13):
        hasher.extend(chain, list(range(n)))
    assert bytes(chain) == b"".join(hashes(list(range(12))))


def test_a_hash_depends_on_every_token_before_its_end():
    one, other = hashes([1, 2, 3, 4, 5, 6, 7, 8]), hashes([0, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert hashes([1, 2, 3, 4] * 2)[0] != hashes([1, 2, 3, 4] * 2)[1]


@pytest.mark.parametrize(
    "change", [{"model_fingerprint": b"x"}, {"adapter": "x"}, {"tenant_salt": b"x"}, {"deployment_seed": b"x"}]
)
def test_each_field_of_the_domain_keeps_apart(change: dict[str, object]):
    assert hashes([1, 2, 3, 4]) != hashes([1, 2, 3, 4], replace(DOMAIN, **change))


def test_fields_that_look_alike_when_joined_are_kept_apart():
    assert PrefixDomain(b"ab", "c").root() != PrefixDomain(b"a", "bc").root()
    assert PrefixDomain(b"m", "", b"s").root() != PrefixDomain(b"m", "s").root()


def test_a_requests_salt_is_mixed_into_its_tenants_and_never_replaces_it():
    def salted(cache_salt: str, domain: PrefixDomain = DOMAIN) -> bytes:
        chain = bytearray()
        PrefixHasher(domain, 4).extend(chain, [1, 2, 3, 4], cache_salt)
        return bytes(chain)

    other = replace(DOMAIN, tenant_salt=b"other")
    assert salted("") == hashes([1, 2, 3, 4])[0]
    assert salted("a") == salted("a")
    assert salted("\ud800") not in (salted(""), salted("?"))  # half a surrogate pair, which JSON allows
    assert len({salted(""), salted("a"), salted("b"), salted("a", other), salted("", other), salted("s")}) == 6
