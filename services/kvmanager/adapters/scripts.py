"""The Lua scripts of the journal: each checks the lease and writes in one atomic step.

Errors begin with a word that the adapter turns into an exception: ``OWNED`` and ``UNOWNED`` (lease), ``AHEAD`` and
``BEHIND`` (position). A token is ``<instance>#<fencing number>#<nonce>``.
"""

_CHECK_LEASE = """
local owner = redis.call('GET', KEYS[1])
if not owner then return redis.error_reply('UNOWNED') end
if owner ~= ARGV[1] then return redis.error_reply('OWNED ' .. owner) end
"""

ACQUIRE = """
local owner = redis.call('GET', KEYS[1])
if owner and string.sub(owner, 1, #ARGV[1] + 1) ~= ARGV[1] .. '#' then
  return redis.error_reply('OWNED ' .. owner)
end
local token = ARGV[1] .. '#' .. redis.call('INCR', KEYS[2]) .. '#' .. ARGV[2]
redis.call('SET', KEYS[1], token, 'PX', ARGV[3])
redis.call('SADD', KEYS[3], ARGV[4])
return token
"""
"""KEYS: owner, fence, pools. ARGV: instance, nonce, lease in ms, pool id. Returns the token."""

RENEW = _CHECK_LEASE + "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"
"""KEYS: owner. ARGV: token, lease in ms."""

RELEASE = _CHECK_LEASE + "return redis.call('DEL', KEYS[1])"
"""KEYS: owner. ARGV: token."""

APPEND = (
    _CHECK_LEASE
    + """
local head = redis.call('GET', KEYS[2]) or '0'
if head ~= ARGV[2] then
  if tonumber(head) < tonumber(ARGV[2]) then return redis.error_reply('BEHIND ' .. head) end
  local there = redis.call('XRANGE', KEYS[3], ARGV[3] .. '-0', ARGV[3] .. '-0')[1]
  if head == ARGV[3] and there and there[2][2] == ARGV[4] then return 'OK' end
  return redis.error_reply('AHEAD ' .. head)
end
redis.call('XADD', KEYS[3], ARGV[3] .. '-0', 'e', ARGV[4])
redis.call('SET', KEYS[2], ARGV[3])
return 'OK'
"""
)
"""KEYS: owner, head, journal. ARGV: token, position before, position, content."""

SAVE_SNAPSHOT = (
    _CHECK_LEASE
    + """
local head = tonumber(redis.call('GET', KEYS[2]) or '0')
local position = tonumber(ARGV[2])
local before = tonumber(redis.call('HGET', KEYS[4], 'position') or '0')
if before ~= 0 and before ~= position then
  redis.call('RENAME', KEYS[4], KEYS[5])
  redis.call('XTRIM', KEYS[3], 'MINID', string.format('%d-0', before + 1))
end
redis.call('HSET', KEYS[4], 'position', ARGV[2], 'content', ARGV[3])
if head < position then redis.call('SET', KEYS[2], ARGV[2]) end
return 'OK'
"""
)
"""KEYS: owner, head, journal, snapshot, the snapshot before it. ARGV: token, position, content.

The entries since the snapshot before it stay, so that there is always something to step through.
"""
