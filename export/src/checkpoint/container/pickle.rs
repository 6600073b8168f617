//! Pickle as data: the values that a program would build, without a program.
//!
//! Values live in an arena and name each other by index, so that a hostile file can neither build a cycle that is freed
//! recursively nor allocate more than its own length allows. Classes are names: a call of an unknown one is
//! [`Value::Opaque`].

use std::collections::HashMap;

/// A pickle of tensors' names and shapes is small; more than this is refused.
const MAX_BYTES: usize = 128 << 20;
/// The most values of a pickle, and the most that it copies.
const MAX_VALUES: usize = 1 << 23;
/// The most axes of a tensor.
const MAX_AXES: usize = 16;
/// The longest name of a class, in bytes.
const MAX_NAME: usize = 512;

/// The index of a value.
pub(super) type Id = u32;

/// A value in the arena.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Float,
    Text(String),
    /// A tuple, a list or a set.
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
    /// A class or a function: `module.name`.
    Global(String),
    /// The argument of a persistent id.
    Persistent(Id),
    /// A call of a class or a function: its name and its arguments.
    Call(String, Id),
    /// An object of an unknown class.
    Opaque(String),
}

/// The values of a pickle.
pub(super) struct Pickle {
    values: Vec<Value>,
    pub(super) root: Id,
}

impl Pickle {
    /// A value.
    pub(super) fn value(&self, id: Id) -> &Value {
        &self.values[id as usize]
    }

    /// The items of a list or a tuple.
    pub(super) fn list(&self, id: Id) -> Option<&[Id]> {
        match self.value(id) {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// A text.
    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.value(id) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number.
    pub(super) fn integer(&self, id: Id) -> Option<i64> {
        match self.value(id) {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Sizes and positions.
    pub(super) fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        let items = self.list(id).filter(|items| items.len() <= MAX_AXES)?;
        items.iter().map(|id| usize::try_from(self.integer(*id)?).ok()).collect()
    }

    /// Reads a pickle of protocols 2 to 5.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("data.pkl has {} bytes: expected at most {MAX_BYTES}", bytes.len()));
        }
        let mut machine = Machine { bytes, ..Machine::default() };
        let root = machine.run().map_err(|why| format!("data.pkl, byte {}: {why}", machine.at))?;
        Ok(Self { values: machine.values, root })
    }
}

#[derive(Default)]
struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Heights of the stack at its marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// Pairs that were copied out of lists.
    copied: usize,
}

type Step<T = ()> = Result<T, String>;

impl Machine<'_> {
    fn run(&mut self) -> Step<Id> {
        loop {
            let [opcode] = self.take()?;
            let value = match opcode {
                b'.' => return self.pop(),
                b'N' => Value::None,
                0x88 => Value::Bool(true),
                0x89 => Value::Bool(false),
                b'J' => Value::Integer(i32::from_le_bytes(self.take()?).into()),
                b'K' | b'M' => Value::Integer(self.number(opcode)? as i64),
                0x8a => {
                    let size = self.number(opcode)?;
                    long(self.slice(size)?)
                }
                b'G' => {
                    self.take::<8>()?;
                    Value::Float
                }
                b'X' | 0x8c | 0x8d => {
                    let size = self.number(opcode)?;
                    Value::Text(String::from_utf8_lossy(self.slice(size)?).into_owned())
                }
                // Bytes: of no use here.
                b'C' | b'U' | b'B' | b'T' | 0x8e | 0x96 => {
                    let size = self.number(opcode)?;
                    self.slice(size)?;
                    Value::Opaque("bytes".into())
                }
                b'}' => Value::Map(Vec::new()),
                b']' | b')' | 0x8f => Value::List(Vec::new()),
                b't' | b'l' | 0x91 => Value::List(self.pop_to_mark()?),
                0x85..=0x87 => Value::List(self.pop_many(usize::from(opcode - 0x84))?),
                b'd' => Value::Map(pairs(&self.pop_to_mark()?)?),
                b'c' => class(format!("{}.{}", self.line()?, self.line()?))?,
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let text = |id: Id| match &self.values[id as usize] {
                        Value::Text(text) if text.len() <= MAX_NAME => Ok(text.clone()),
                        _ => Err("a class without a name, or with a long one".to_owned()),
                    };
                    class(format!("{}.{}", text(module)?, text(name)?))?
                }
                b'Q' => Value::Persistent(self.pop()?),
                // REDUCE, NEWOBJ
                b'R' | 0x81 => {
                    let (arguments, callee) = (self.pop()?, self.pop()?);
                    self.call(callee, arguments)?
                }
                // NEWOBJ_EX
                0x92 => {
                    let (_, arguments, callee) = (self.pop()?, self.pop()?, self.pop()?);
                    self.call(callee, arguments)?
                }
                _ => {
                    self.change(opcode)?;
                    continue;
                }
            };
            self.push(value)?;
        }
    }

    /// An operation that makes no value.
    fn change(&mut self, opcode: u8) -> Step {
        match opcode {
            // PROTO, FRAME
            0x80 => drop(self.take::<1>()?),
            0x95 => drop(self.take::<8>()?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => self.stack.push(self.top()?),
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_to_mark()?;
                self.append(&items)?;
            }
            b's' | b'u' => {
                let items = if opcode == b's' { self.pop_many(2)? } else { self.pop_to_mark()? };
                self.insert(&items)?;
            }
            b'q' | b'r' | 0x94 => {
                let slot = if opcode == 0x94 { self.memo.len() as u64 } else { self.number(opcode)? };
                self.memo.insert(slot, self.top()?);
            }
            b'h' | b'j' => {
                let slot = self.number(opcode)?;
                let id = self.memo.get(&slot).ok_or_else(|| format!("nothing is remembered as {slot}"))?;
                self.stack.push(*id);
            }
            // BUILD: the state of an object whose class is unknown, or the metadata of an OrderedDict.
            b'b' => drop(self.pop()?),
            other => return Err(format!("operation {other:#04x} is unknown")),
        }
        Ok(())
    }

    /// An ordered dictionary is a dictionary, other calls keep their arguments.
    fn call(&mut self, callee: Id, arguments: Id) -> Step<Value> {
        let name = match &self.values[callee as usize] {
            Value::Global(name) => name.clone(),
            _ => "an object".into(),
        };
        Ok(match name.as_str() {
            "collections.OrderedDict" | "collections.defaultdict" | "builtins.dict" => {
                let pairs = self.initial_pairs(arguments);
                self.copied += pairs.len();
                if self.copied > MAX_VALUES {
                    return Err(format!("more than {MAX_VALUES} entries"));
                }
                Value::Map(pairs)
            }
            _ if name.starts_with("torch.") => Value::Call(name, arguments),
            _ => Value::Opaque(name),
        })
    }

    /// The pairs of `OrderedDict([(key, value), …])`.
    fn initial_pairs(&self, arguments: Id) -> Vec<(Id, Id)> {
        let items = |id: Id| match &self.values[id as usize] {
            Value::List(items) => items.as_slice(),
            _ => &[],
        };
        let Some(first) = items(arguments).first() else { return Vec::new() };
        let pair = |id: &Id| match items(*id) {
            [key, value] => Some((*key, *value)),
            _ => None,
        };
        items(*first).iter().filter_map(pair).collect()
    }

    fn push(&mut self, value: Value) -> Step {
        if self.values.len() >= MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn append(&mut self, items: &[Id]) -> Step {
        let list = self.top()?;
        // Objects of unknown classes may be lists or sets; their items do not matter.
        if let Value::List(list) = &mut self.values[list as usize] {
            list.extend_from_slice(items);
        }
        Ok(())
    }

    fn insert(&mut self, items: &[Id]) -> Step {
        let map = self.top()?;
        if let Value::Map(map) = &mut self.values[map as usize] {
            map.extend(pairs(items)?);
        }
        Ok(())
    }

    /// The height that `count` items below the top leave, which a mark bounds.
    fn floor(&self, count: usize) -> Step<usize> {
        let height = self.stack.len().checked_sub(count).ok_or("the stack is empty")?;
        if self.marks.last().is_some_and(|mark| height < *mark) {
            return Err("the stack is empty above its mark".into());
        }
        Ok(height)
    }

    fn pop(&mut self) -> Step<Id> {
        self.floor(1)?;
        Ok(self.stack.pop().expect("the stack has an item"))
    }

    fn top(&self) -> Step<Id> {
        Ok(self.stack[self.floor(1)?])
    }

    fn pop_many(&mut self, count: usize) -> Step<Vec<Id>> {
        let height = self.floor(count)?;
        Ok(self.stack.split_off(height))
    }

    fn pop_to_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("no mark")?;
        Ok(self.stack.split_off(mark))
    }

    /// The size, slot or value behind an operation that has one.
    fn number(&mut self, opcode: u8) -> Step<u64> {
        let width = match opcode {
            b'M' => 2,
            b'X' | b'B' | b'T' | b'r' | b'j' => 4,
            0x8d | 0x8e | 0x96 => 8,
            _ => 1,
        };
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.slice(width as u64)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn take<const N: usize>(&mut self) -> Step<[u8; N]> {
        Ok(self.slice(N as u64)?.try_into().expect("the slice has N bytes"))
    }

    fn slice(&mut self, size: u64) -> Step<&[u8]> {
        let end = usize::try_from(size).ok().and_then(|size| self.at.checked_add(size));
        let found = end.and_then(|end| self.bytes.get(self.at..end)).ok_or("it ends too early")?;
        self.at += found.len();
        Ok(found)
    }

    fn line(&mut self) -> Step<String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or("it ends too early")?;
        self.at += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

fn pairs(items: &[Id]) -> Step<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    } else {
        Err("a key without a value".into())
    }
}

fn class(name: String) -> Step<Value> {
    if name.len() > MAX_NAME {
        Err(format!("a class has a name of {} bytes", name.len()))
    } else {
        Ok(Value::Global(name))
    }
}

/// A whole number of any length; one beyond 64 bits has no use here.
fn long(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Opaque("a large number".into());
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xFF } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Value::Integer(i64::from_le_bytes(wide))
}
