-- The parts of the sandbox that are easier in Lua: what catches errors, and what calls functions of
-- the script. It gets the functions of Lua and of Rust that it needs, and uses no globals.
local lua, rust = ...
local type, error, select = lua.type, lua.error, lua.select
local pcall, xpcall = lua.pcall, lua.xpcall
local load = lua.load
local sort, concat, sub = lua.sort, lua.concat, lua.sub
local create, resume = lua.create, lua.resume
local unpack, insert, remove, foreachi = lua.unpack, lua.insert, lua.remove, lua.foreachi
local caught, check, fail = rust.caught, rust.check, rust.fail
local stopped, failed = rust.stopped, rust.failed
local format, format_check, concat_check = lua.format, rust.format_check, rust.concat_check
local step, gsub_plain, gsub_check = rust.step, rust.gsub, rust.gsub_check
local gmatch_check, sort_plain, native = rust.gmatch_check, rust.sort_plain, rust.native
local load_check, loadstring_check = rust.load_check, rust.loadstring_check
local create_check, resume_check = rust.create_check, rust.resume_check
local unpack_check, insert_check = rust.unpack_check, rust.insert_check
local remove_check, foreachi_check = rust.remove_check, rust.foreachi_check

local out = {}

-- An error as scripts see it. Errors of Rust are userdata, which scripts never see.
local function seen(err)
  if type(err) == 'userdata' then return caught(err) end
  return err
end

local function protected(ok, ...)
  if ok then return true, ... end
  local err = seen((...))
  failed(err)
  -- As in Redis: before version 7, errors of commands were strings.
  if type(err) == 'table' then
    local text = rust.rawget(err, 'err')
    if type(text) == 'string' or type(text) == 'number' then return false, text end
  end
  return false, err
end

function out.pcall(...)
  return protected(pcall(...))
end

-- Lua calls no handler if the memory is full.
local function ended(ok, ...)
  if not ok then check((...)) end
  return ok, ...
end

-- Calls of a handler that fails each time. Lua makes about as many.
local HANDLER_CALLS = 200

-- Lua calls a handler inside of the function that failed. If the handler fails, Lua calls it again,
-- inside of the handler: 200 frames of C functions would then fill the stack of a thread. Here, each
-- call of the handler ends before the next one.
function out.xpcall(f, handler)
  local busy = false
  return ended(xpcall(f, function(err)
    if busy then return 'error in error handling' end
    busy = true
    for _ = 1, HANDLER_CALLS do
      -- Inside of the hook that stops the run, no further hook counts.
      if stopped() then return err end
      local ok, result = pcall(handler, seen(err))
      if ok then return result end
      failed(result)
      err = result
    end
    return 'error in error handling'
  end))
end

local function resumed(ok, ...)
  if ok then return true, ... end
  local err = seen((...))
  failed(err)
  return false, err
end

-- No coroutine runs after the run was stopped: it would have some instructions of its own.
function out.create(f)
  create_check(f)
  return create(f)
end

function out.resume(...)
  resume_check((...))
  return resumed(resume(...))
end

local function delivered(ok, ...)
  if ok then return ... end
  local err = ...
  check(err)
  if type(err) == 'string' then fail(err) end
  error(err, 0)
end

function out.wrap(f)
  create_check(f)
  local co = create(f)
  return function(...)
    check()
    return delivered(resume(co, ...))
  end
end

-- Bytecode can break the state of Lua, so only text is loaded.
local function loaded(f, err)
  if not f then check(err) end
  return f, err
end

function out.loadstring(...)
  return loaded(load(loadstring_check(...)))
end

function out.load(...)
  local f, name = load_check(...)
  local pieces = {}
  while true do
    local piece = f()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' and type(piece) ~= 'number' then
      return nil, 'reader function must return a string'
    end
    pieces[#pieces + 1] = piece
  end
  return loaded(load(loadstring_check(concat(pieces), name)))
end

-- Lua's `unpack` trusts a number of results that overflows, and writes past its stack. The limit is
-- that of results which fit on Lua's stack.
function out.unpack(...)
  local t, first, last = ...
  if first == nil and last == nil and type(t) == 'table' and #t <= 7990 then return unpack(t) end
  return unpack(unpack_check(...))
end

-- The loops of these are in C, where no instruction counts, and a table with a few elements can have
-- a length of 2^29.
function out.insert(...)
  if select('#', ...) ~= 2 or type((...)) ~= 'table' then insert_check(...) end
  return insert(...)
end

function out.remove(...)
  if select('#', ...) ~= 1 or type((...)) ~= 'table' then remove_check(...) end
  return remove(...)
end

function out.foreachi(...)
  foreachi_check(...)
  return foreachi(...)
end

-- Lua's sort compares in C, where no instruction counts. With a function of Lua, they do.
function out.sort(...)
  if sort_plain(...) then return end
  local t, compare = ...
  local less = compare
  if compare == nil then
    less = function(a, b) return a < b end
  elseif native(compare) then
    less = function(a, b) return compare(a, b) end
  end
  local ok, err = pcall(sort, t, less)
  if ok then return end
  check(err)
  if err == 'invalid order function for sorting' then return fail(err) end
  if compare == nil and type(err) == 'string' then err = rust.unplaced(err) end
  error(err, 0)
end

function out.gmatch(...)
  local from = 1
  local s, p = gmatch_check(...)
  local function continue(first, last, ...)
    if not first then return nil end
    from = last + 1
    if last < first then from = first + 1 end
    return ...
  end
  return function()
    return continue(step(s, p, from))
  end
end

-- One replacement: where it begins and ends, and what replaces it.
local function replaced(replacement, kind, s, first, last, ...)
  if not first then return nil end
  local value
  if kind == 'function' then
    value = replacement(...)
  else
    value = replacement[(...)]
  end
  if not value then return first, last, sub(s, first, last) end
  kind = type(value)
  if kind ~= 'string' and kind ~= 'number' then
    fail('invalid replacement value (a ' .. kind .. ')')
  end
  return first, last, value
end

function out.gsub(...)
  local _, _, replacement = ...
  local kind = type(replacement)
  if kind ~= 'function' and kind ~= 'table' then
    local result, count = gsub_plain(...)
    return result, count
  end
  local subject, pattern, most, anchored = gsub_check(...)
  local pieces, count, from, copied = {}, 0, 1, 1
  while count < most do
    local first, last, value =
      replaced(replacement, kind, subject, step(subject, pattern, from, true))
    if not first then break end
    count = count + 1
    pieces[#pieces + 1] = sub(subject, copied, first - 1)
    pieces[#pieces + 1] = value
    copied = last + 1
    from = copied
    if last < first then from = first + 1 end
    if anchored then break end
  end
  pieces[#pieces + 1] = sub(subject, copied)
  return concat(pieces), count
end

-- Where strings or tables may be large: C handles all of them at once.
function out.format(...)
  return format(format_check(...))
end

function out.concat(...)
  concat_check(...)
  return concat(...)
end

-- Metamethods of the tables that scripts see.
function out.readonly()
  error('Attempt to modify a readonly table', 2)
end

function out.nonexistent(_, name)
  if type(name) ~= 'string' and type(name) ~= 'number' then
    error('Second argument to luaProtectedTableError must be a string or number', 2)
  end
  error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
end

-- Runs a script.
local globals, api, handler = rust.globals, rust.api, rust.handler
function out.run(script, keys, args, call, protected_call, check)
  globals.KEYS, globals.ARGV = keys, args
  api.call, api.pcall, api.acl_check_cmd = call, protected_call, check
  return xpcall(script, handler)
end

return out
