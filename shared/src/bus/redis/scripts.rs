//! The scripts: each is one step of the server's.

/// The identity of the server's data, which is new after every start and every promotion: numbers that were given before
/// may be given again, so they belong to another epoch. Empty where the user may not run INFO.
const SERVER: &str = r"
local info = redis.pcall('INFO', 'replication')
local server = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
";

/// Appends and publishes. Returns 0 where a newer lease has published, 2 where this was appended before, 3 where it came too
/// early; 1 otherwise. What is compared is told in `bus/batch.rs`.
const APPEND: &str = r"
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'token', 'entry', 'seen', 'server')
local epoch, n = meta[1], tonumber(meta[2] or '0')
local newest, entry, seen = tonumber(meta[3] or '0'), tonumber(meta[4] or '0'), meta[5] or ' '
local mode, token, first, last = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local id, restart = ARGV[5], ARGV[6] == '1'
if mode == 'run' and token and token < newest then return 0 end
if id ~= '' and string.find(seen, ' ' .. id .. ' ', 1, true) then return 2 end
if last then
  if mode ~= 'stored' and token == newest and last <= entry then return 2 end
  local gap = (token == newest and entry + 1 < first) or (newest < token and 1 < first)
    or (token < newest and mode == 'stored')
  if gap and ARGV[7] == '1' then return 3 end
  restart = restart or gap
end
if not epoch or restart or server ~= (meta[6] or '') then
  epoch, n = ARGV[8], 0
  redis.call('DEL', KEYS[1])
end
local from = n + 1
for i = 12, #ARGV do
  n = n + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[9], n .. '-0', 'e', ARGV[i])
end
if token and newest < token then
  redis.call('HSET', KEYS[2], 'token', ARGV[2], 'entry', last or 0)
elseif last and token == newest and entry < last then
  redis.call('HSET', KEYS[2], 'entry', last)
end
if id ~= '' then
  seen = seen .. id .. ' '
  local _, count = string.gsub(seen, '%S+', '')
  if SEEN_MOST < count then seen = string.match(seen, '^ %S+(.*)$') end
  redis.call('HSET', KEYS[2], 'seen', seen)
end
redis.call('HSET', KEYS[2], 'epoch', epoch, 'n', n, 'server', server)
redis.call('PEXPIRE', KEYS[1], ARGV[10])
redis.call('PEXPIRE', KEYS[2], ARGV[10])
redis.call('PUBLISH', ARGV[11], epoch .. ' ' .. from .. '\n' .. table.concat(ARGV, '\n', 12))
return 1
";

/// The numbering and its last number. A stream that has none, or one of another server, gets one, so that every place in it
/// has a name.
const TAIL: &str = r"
local meta = redis.call('HMGET', KEYS[2], 'epoch', 'n', 'server')
local epoch, n = meta[1], meta[2]
if not epoch or server ~= (meta[3] or '') then
  epoch, n = ARGV[1], '0'
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[2], 'epoch', epoch, 'n', n, 'server', server)
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
";

/// What follows a place, read in one step: between two reads the log could be trimmed or renumbered. Where the
/// numbering is another: its start, if the log still has that, or else its end.
const READ: &str = r"
if epoch == ARGV[3] then
  return {epoch, n, redis.call('XRANGE', KEYS[1], ARGV[4] .. '-0', '+', 'COUNT', ARGV[5])}
end
local whole = #redis.call('XRANGE', KEYS[1], '1-0', '1-0') == 1
return {epoch, whole and '0' or n, {}}
";

/// Appends: the arguments are mode, token, first, last, id, restart, waits, new epoch, longest log, time to keep, channel, and
/// the events.
pub(super) fn append() -> String {
    format!("{SERVER}{APPEND}").replace("SEEN_MOST", &crate::bus::batch::SEEN.to_string())
}

/// The place after the newest event: the arguments are new epoch, time to keep.
pub(super) fn tail() -> String {
    format!("{SERVER}{TAIL} return {{epoch, n}}")
}

/// What follows a place: the arguments are those of the tail, epoch, first number, how many.
pub(super) fn read() -> String {
    format!("{SERVER}{TAIL}{READ}")
}
