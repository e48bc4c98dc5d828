"""Keeps what tenants cache and name apart."""

from hashlib import sha256


def tenant_salt(tenant: str, cache_salt: str) -> str:
    """The salt of a tenant's prefix hashes, with the one that a request asks for mixed in.

    Different pairs give different salts, so a request never leaves its tenant. Without tenants the request's own is
    used alone.
    """
    if not tenant:
        return cache_salt
    name = tenant.encode(errors="surrogatepass")
    salt = cache_salt.encode(errors="surrogatepass")
    return sha256(b"tenant" + len(name).to_bytes(8, "little") + name + salt).hexdigest()
