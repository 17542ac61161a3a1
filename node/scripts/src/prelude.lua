-- The parts of the sandbox that are easier in Lua: what catches errors, and what calls functions of
-- the script. It gets the functions of Lua and of Rust that it needs, and uses no globals.
local lua, rust = ...
local type, error, select, tostring = lua.type, lua.error, lua.select, lua.tostring
local pcall, xpcall = lua.pcall, lua.xpcall
local loadstring, getfenv, setfenv = lua.loadstring, lua.getfenv, lua.setfenv
local sort, concat, sub, byte = lua.sort, lua.concat, lua.sub, lua.byte
local create, resume, wrap = lua.create, lua.resume, lua.wrap
local next = lua.next
local caught, check, charge, fail = rust.caught, rust.check, rust.charge, rust.fail
local step, gsub_plain, gsub_check = rust.step, rust.gsub, rust.gsub_check
local gmatch_check, sort_plain, native = rust.gmatch_check, rust.sort_plain, rust.native
local taint = rust.taint

local out = {}

-- An error as scripts see it. Errors of Rust are userdata, which scripts never see.
local function seen(err)
  if type(err) == 'userdata' then return caught(err) end
  return err
end

local function protected(ok, ...)
  if ok then return true, ... end
  check()
  local err = seen((...))
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

function out.xpcall(f, handler)
  return xpcall(f, function(err) return handler(seen(err)) end)
end

local function resumed(ok, ...)
  if ok then return true, ... end
  check()
  return false, seen((...))
end

function out.create(f)
  check()
  return create(f)
end

function out.resume(...)
  check()
  return resumed(resume(...))
end

function out.wrap(f)
  check()
  local run = wrap(f)
  return function(...)
    check()
    return run(...)
  end
end

-- Bytecode can break the state of Lua, so only text is loaded.
function out.loadstring(text, name)
  if type(text) == 'string' then
    charge(#text)
    if byte(text, 1) == 27 then text = ' ' .. text end
  end
  if name == nil then return loadstring(text) end
  return loadstring(text, name)
end

function out.load(f, name)
  local pieces = {}
  while true do
    local piece = f()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' and type(piece) ~= 'number' then
      return nil, 'reader function must return a string'
    end
    pieces[#pieces + 1] = piece
  end
  return out.loadstring(concat(pieces), name or '=(load)')
end

-- Levels count from the caller, which is one further away from here.
function out.getfenv(f)
  if f == nil then f = 1 end
  if type(f) == 'number' and f >= 1 then f = f + 1 end
  local env = getfenv(f)
  return env
end

function out.setfenv(f, env)
  -- A function that is kept for the next run may have another environment now.
  taint()
  if type(f) == 'number' and f >= 1 then f = f + 1 end
  local result = setfenv(f, env)
  return result
end

-- Lua's sort compares in C, where no instruction counts. With a function of Lua, they do.
function out.sort(t, compare)
  if sort_plain(t, compare) then return end
  local less = compare
  if compare == nil then
    less = function(a, b) return a < b end
  elseif native(compare) then
    less = function(a, b) return compare(a, b) end
  end
  local ok, err = pcall(sort, t, less)
  if ok then return end
  check()
  if err == 'invalid order function for sorting' then return fail(err) end
  if compare == nil and type(err) == 'string' then err = rust.unplaced(err) end
  error(err, 0)
end

function out.gmatch(s, p)
  local from = 1
  s, p = gmatch_check(s, p)
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

function out.gsub(s, p, replacement, n)
  local kind = type(replacement)
  if kind ~= 'function' and kind ~= 'table' then
    local result, count = gsub_plain(s, p, replacement, n)
    return result, count
  end
  local subject, pattern, most, anchored = gsub_check(s, p, replacement, n)
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

-- Runs a script. Returns nothing if an earlier run has changed a read-only table.
local fronts, globals, api, handler = rust.fronts, rust.globals, rust.api, rust.handler
function out.run(script, keys, args, call, protected_call)
  for i = 1, #fronts do
    if next(fronts[i]) ~= nil then return end
  end
  globals.KEYS, globals.ARGV = keys, args
  api.call, api.pcall = call, protected_call
  return xpcall(script, handler)
end

return out
