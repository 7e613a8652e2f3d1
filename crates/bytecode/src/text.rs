//! The printed form of a code object, and its reader: what logs show and tests compare.
//!
//! ```text
//! version 3.11 line 1
//! i0 RESUME 0 @1
//! i1 LOAD_FAST 0 @2:7-2:8
//! i2 POP_JUMP_FORWARD_IF_FALSE -> i4 @2:4-2:8
//! i3 LOAD_CONST 300 prefixes 1
//! except i1..i3 -> i4 depth 0 lasti
//! ```
//!
//! A location is `@line`, or `@line:column-line:column` with `?` for an unknown column. Prefixes
//! are shown where there are any. Reading back what was printed gives the same code, except for the
//! offsets and the jumps' decoded arguments, which editing makes stale anyway. The reader takes any
//! `iN` at a line's start as long as they count up, and skips blank lines and `#` comments.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use crate::code::{Code, Region};
use crate::error::Error;
use crate::instruction::{InstrId, Instruction};
use crate::line_table::Location;
use crate::opcode::Opcode;
use crate::version::Version;

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Some(target) => write!(f, "{} -> {target}", self.opcode)?,
            None => write!(f, "{} {}", self.opcode, self.arg)?,
        }
        if self.prefixes > 0 {
            write!(f, " prefixes {}", self.prefixes)?;
        }
        Ok(())
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { start, end, target, depth, lasti } = self;
        let lasti = if *lasti { " lasti" } else { "" };
        write!(f, "except {start}..{end} -> {target} depth {depth}{lasti}")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |column: Option<u32>| column.map_or("?".to_owned(), |c| c.to_string());
        if self.line == self.end_line && self.column.is_none() && self.end_column.is_none() {
            return write!(f, "@{}", self.line);
        }
        let (start, end) = (column(self.column), column(self.end_column));
        write!(f, "@{}:{start}-{}:{end}", self.line, self.end_line)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version {} line {}", self.version, self.first_line)?;
        for (at, instruction) in self.instructions.iter().enumerate() {
            write!(f, "{} {instruction}", InstrId(at as u32))?;
            match self.locations.get(at) {
                Some(Some(location)) => writeln!(f, " {location}")?,
                _ => writeln!(f)?,
            }
        }
        self.regions.iter().try_for_each(|region| writeln!(f, "{region}"))
    }
}

impl FromStr for Code {
    type Err = Error;

    fn from_str(text: &str) -> Result<Code, Error> {
        let lines = text.lines().map(str::trim).enumerate();
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let at_line = |at: usize| move |why: String| Error::Text { line: at + 1, why };
        let (at, head) = lines.next().ok_or_else(|| at_line(0)("no text".to_owned()))?;
        let mut code = read_head(head).map_err(at_line(at))?;
        for (at, line) in lines {
            read_line(&mut code, line).map_err(at_line(at))?;
        }
        Ok(code)
    }
}

fn read_head(line: &str) -> Result<Code, String> {
    let mut words = line.split_whitespace();
    expect(&mut words, "version")?;
    let name: String = word(&mut words)?;
    let version = Version::ALL.into_iter().find(|version| version.to_string() == name);
    let version = version.ok_or_else(|| format!("unknown version {name}"))?;
    expect(&mut words, "line")?;
    let first_line = word(&mut words)?;
    Ok(Code { version, first_line, instructions: vec![], regions: vec![], locations: vec![] })
}

fn read_line(code: &mut Code, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    if let Some(rest) = line.strip_prefix("except ") {
        code.regions.push(read_region(rest)?);
        return Ok(());
    }
    let id = read_id(&word::<String>(&mut words)?)?;
    if id.index() != code.instructions.len() {
        return Err(format!("{id} where i{} is next", code.instructions.len()));
    }
    let (instruction, location) = read_instruction(code.version, &mut words)?;
    code.instructions.push(instruction);
    code.locations.push(location);
    Ok(())
}

fn read_instruction(
    version: Version,
    words: &mut SplitWhitespace<'_>,
) -> Result<(Instruction, Option<Location>), String> {
    let name: String = word(words)?;
    let opcode = Opcode::from_name(&name).ok_or_else(|| format!("unknown opcode {name}"))?;
    let arg: String = word(words)?;
    let instruction = if arg == "->" {
        Instruction::jump(version, opcode, read_id(&word::<String>(words)?)?)
    } else {
        Instruction::new(version, opcode, number(&arg)?)
    };
    let mut instruction =
        instruction.ok_or_else(|| format!("{name} doesn't go with {arg} in {version}"))?;
    let mut location = None;
    while let Some(extra) = words.next() {
        match extra.strip_prefix('@') {
            Some(text) => location = Some(read_location(text)?),
            None if extra == "prefixes" => instruction.prefixes = word(words)?,
            None => return Err(format!("unexpected {extra}")),
        }
    }
    Ok((instruction, location))
}

fn read_location(text: &str) -> Result<Location, String> {
    let Some((start, end)) = text.split_once('-') else {
        let line = number(text)?;
        return Ok(Location { line, end_line: line, column: None, end_column: None });
    };
    let (line, column) = read_position(start)?;
    let (end_line, end_column) = read_position(end)?;
    Ok(Location { line, end_line, column, end_column })
}

fn read_position(text: &str) -> Result<(i32, Option<u32>), String> {
    let (line, column) = text.split_once(':').ok_or_else(|| format!("no column in {text}"))?;
    let column = if column == "?" { None } else { Some(number(column)?) };
    Ok((number(line)?, column))
}

fn read_region(text: &str) -> Result<Region, String> {
    let mut words = text.split_whitespace();
    let range: String = word(&mut words)?;
    let (start, end) = range.split_once("..").ok_or_else(|| format!("no range: {range}"))?;
    expect(&mut words, "->")?;
    let target = read_id(&word::<String>(&mut words)?)?;
    expect(&mut words, "depth")?;
    let depth = word(&mut words)?;
    let lasti = match words.next() {
        None => false,
        Some("lasti") => true,
        Some(other) => return Err(format!("unexpected {other}")),
    };
    Ok(Region { start: read_id(start)?, end: read_id(end)?, target, depth, lasti })
}

fn read_id(text: &str) -> Result<InstrId, String> {
    let digits = text.strip_prefix('i').ok_or_else(|| format!("{text} is no instruction"))?;
    number(digits).map(InstrId)
}

fn expect(words: &mut SplitWhitespace<'_>, expected: &str) -> Result<(), String> {
    match words.next() {
        Some(found) if found == expected => Ok(()),
        found => Err(format!("expected {expected}, found {}", found.unwrap_or("nothing"))),
    }
}

fn word<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Result<T, String> {
    number(words.next().ok_or("the line ends too early")?)
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("can't read {text}"))
}
