//! A program from its text.

use rustc_hash::FxHashMap;

use super::lexer::{Lexer, Token};
use super::{
    ATTRIBUTES, ConstantType, DEPTH, METHOD, Malformed, Program, Requirement, TensorType, Tree,
};
use crate::arg::{Arg, Constant};
use crate::graph::{Graph, Target};
use crate::ids::{NodeId, ObjectId, TextId};
use crate::operator::Operator;
use crate::print::repr_str;
use crate::tensor::{Dtype, Value};

/// The first line: the name of the format and its version.
pub(super) const HEADER: &str = "stator.program 1";

impl Program {
    /// Reads the text form.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        match lines.next() {
            Some((_, HEADER)) => {}
            Some((_, line)) if line.starts_with("stator.program ") => {
                let message = format!("this version of the text is unknown: {HEADER:?} is known");
                return Err(Malformed::new(1, message));
            }
            _ => return Err(Malformed::new(1, "no tensor program begins like this")),
        }
        let mut parser = Parser::default();
        for (number, line) in lines {
            parser.line(line, number)?;
        }
        parser.finish()
    }
}

#[derive(Default)]
struct Parser {
    graph: Graph,
    objects: FxHashMap<String, ObjectId>,
    structures: FxHashMap<NodeId, u32>,
    inputs: Vec<TensorType>,
    constants: Vec<ConstantType>,
    requirements: Vec<Requirement>,
    default_dtype: Option<Dtype>,
    takes: Option<Tree>,
    gives: Option<Tree>,
    outputs: Option<(Vec<Arg>, Vec<TensorType>)>,
}

type Parsed<T> = Result<T, Malformed>;

impl Parser {
    fn line(&mut self, text: &str, number: usize) -> Parsed<()> {
        let mut lexer = Lexer::new(text, number);
        let lexer = &mut lexer;
        if self.outputs.is_some() {
            return Err(lexer.error("there is something behind the return"));
        }
        match lexer.next()? {
            Token::Node(node) => {
                if node != self.graph.len() {
                    let expected = self.graph.len();
                    return Err(lexer.error(&format!("expected %{expected}, found %{node}")));
                }
                lexer.expect("=")?;
                self.node(lexer)?;
            }
            Token::Name("default_dtype") => self.default_dtype = Some(dtype(lexer)?),
            Token::Name("require") => {
                let condition = text.trim_start().strip_prefix("require").unwrap_or_default();
                let requirement = Requirement::parse_line(condition, number)?;
                let has = |input: usize, dim: usize| {
                    self.inputs.get(input).is_some_and(|input| dim < input.sizes.len())
                };
                if !requirement.is_about(&has) {
                    return Err(lexer.error("a condition on a size that no input has"));
                }
                self.requirements.push(requirement);
                return Ok(());
            }
            Token::Name("takes") => self.takes = Some(Tree::parse(lexer, DEPTH)?),
            Token::Name("gives") => self.gives = Some(Tree::parse(lexer, DEPTH)?),
            Token::Name("return") => self.outputs = Some(self.returned(lexer)?),
            other => return Err(lexer.unexpected(&other, "a node")),
        }
        lexer.end()
    }

    fn node(&mut self, lexer: &mut Lexer<'_>) -> Parsed<()> {
        let name = match lexer.next()? {
            Token::Name(name) => name,
            other => return Err(lexer.unexpected(&other, "what the node does")),
        };
        match name {
            "input" => {
                if self.graph.len() > self.inputs.len() {
                    return Err(lexer.error("inputs come first"));
                }
                let ty = tensor_type(lexer)?;
                self.graph.placeholder(&format!("input {}", self.inputs.len()), Value::Unknown);
                self.inputs.push(ty);
            }
            "constant" => {
                if self.graph.len() > self.inputs.len() + self.constants.len() {
                    return Err(lexer.error("constants come before operations"));
                }
                let tensor = tensor_type(lexer)?;
                if tensor.sizes.contains(&None) {
                    return Err(lexer.error("the sizes of a constant are known"));
                }
                let requires_grad = lexer.peek()? == Token::Name("requires_grad");
                if requires_grad {
                    lexer.next()?;
                }
                let source = format!("constant {}", self.constants.len());
                self.graph.placeholder(&source, Value::Unknown);
                self.constants.push(ConstantType { tensor, requires_grad });
            }
            "item" => {
                let (args, _) = self.arguments(lexer)?;
                let (Some(Arg::Node(of)), Some(Arg::Constant(Constant::Int(index))), 2) =
                    (args.first(), args.get(1), args.len())
                else {
                    return Err(lexer.error("item takes a node and a position"));
                };
                let index = u32::try_from(*index).ok().filter(|index| *index < 1 << 20);
                let index = index.ok_or_else(|| lexer.error("no position in a result"))?;
                let len = self.structures.entry(*of).or_default();
                *len = (*len).max(index + 1);
                self.graph.get_item(*of, index);
            }
            "attribute" => {
                let (args, _) = self.arguments(lexer)?;
                let [owner, Arg::Constant(Constant::Str(name))] = args[..] else {
                    return Err(lexer.error("attribute takes a node and a name"));
                };
                if !ATTRIBUTES.contains(&self.graph.text(name)) {
                    return Err(lexer.error("programs don't read this attribute"));
                }
                self.graph.call(Target::GetAttr { name }, &[owner], None);
            }
            _ => {
                let target = self.target(lexer, name)?;
                let (args, names) = self.arguments(lexer)?;
                self.graph.call_with_keywords(target, &args, &names, None);
            }
        }
        Ok(())
    }

    fn target(&mut self, lexer: &Lexer<'_>, name: &str) -> Parsed<Target> {
        if let Some(operator) = name.strip_prefix("operator.") {
            let operator = Operator::from_name(operator);
            return operator
                .map(Target::Operator)
                .ok_or_else(|| lexer.error(&format!("there is no operator {name}")));
        }
        let full = if name.starts_with('.') { format!("{METHOD}{name}") } else { name.to_string() };
        if !full.contains('.') {
            return Err(lexer.error(&format!("there is no operation {name}")));
        }
        let object = self.object(&full);
        Ok(Target::Function { name: self.graph.intern(&full), object })
    }

    fn object(&mut self, text: &str) -> ObjectId {
        if let Some(known) = self.objects.get(text) {
            return *known;
        }
        let id = self.graph.add_object(text);
        self.objects.insert(text.to_string(), id);
        id
    }

    /// Arguments in parentheses: those given by name come last.
    fn arguments(&mut self, lexer: &mut Lexer<'_>) -> Parsed<(Vec<Arg>, Vec<TextId>)> {
        lexer.expect("(")?;
        let (mut args, mut names) = (Vec::new(), Vec::new());
        while !lexer.takes(")") {
            let token = lexer.next()?;
            if let Token::Name(name) = token
                && lexer.takes("=")
            {
                names.push(self.graph.intern(name));
                let first = lexer.next()?;
                args.push(self.arg(lexer, first, DEPTH)?);
            } else if names.is_empty() {
                args.push(self.arg(lexer, token, DEPTH)?);
            } else {
                return Err(lexer.error("an argument without a name behind one that has one"));
            }
            if !lexer.takes(",") && lexer.peek()? != Token::Sign(")") {
                let found = lexer.next()?;
                return Err(lexer.unexpected(&found, "\",\" or \")\""));
            }
        }
        Ok((args, names))
    }

    /// An argument that begins with this token.
    fn arg(&mut self, lexer: &mut Lexer<'_>, token: Token<'_>, depth: usize) -> Parsed<Arg> {
        if depth == 0 {
            return Err(lexer.error("arguments are nested too deep"));
        }
        Ok(match token {
            Token::Node(node) if node < self.graph.len() => Arg::Node(NodeId::new(node)),
            Token::Node(node) => {
                return Err(lexer.error(&format!("reads %{node}, which isn't before it")));
            }
            Token::Number(digits) => self.number(lexer, digits, false)?,
            Token::Sign("-") => match lexer.next()? {
                Token::Number(digits) => self.number(lexer, digits, true)?,
                Token::Name("inf") => Arg::float(f64::NEG_INFINITY),
                other => return Err(lexer.unexpected(&other, "a number")),
            },
            Token::Text(text) => self.graph.str(&text),
            Token::Bytes(text) => {
                let bytes: Vec<u8> =
                    text.chars().filter_map(|c| u32::from(c).try_into().ok()).collect();
                self.graph.bytes(&bytes)
            }
            Token::Sign("...") => Arg::Constant(Constant::Ellipsis),
            Token::Sign("[") => {
                let (items, _) = self.items(lexer, "]", depth)?;
                self.graph.list(&items)
            }
            Token::Sign("(") => {
                let (items, has_comma) = self.items(lexer, ")", depth)?;
                if items.len() == 1 && !has_comma {
                    return Err(lexer.error("a tuple of one element has a comma behind it"));
                }
                self.graph.tuple(&items)
            }
            Token::Sign("{") => self.dict(lexer, depth)?,
            Token::Name("None") => Arg::NONE,
            Token::Name("True") => Arg::bool(true),
            Token::Name("False") => Arg::bool(false),
            Token::Name("inf") => Arg::float(f64::INFINITY),
            Token::Name("nan") => Arg::float(f64::NAN),
            Token::Name("slice") => {
                lexer.expect("(")?;
                match self.items(lexer, ")", depth)?.0[..] {
                    [start, stop, step] => self.graph.slice(start, stop, step),
                    _ => return Err(lexer.error("a slice has three parts")),
                }
            }
            Token::Name("complex") => {
                lexer.expect("(")?;
                match self.items(lexer, ")", depth)?.0[..] {
                    [
                        Arg::Constant(Constant::Float(real)),
                        Arg::Constant(Constant::Float(imaginary)),
                    ] => Arg::Constant(Constant::Complex(real, imaginary)),
                    _ => return Err(lexer.error("a complex number has two parts")),
                }
            }
            Token::Name("torch.device") => {
                lexer.expect("(")?;
                let device = lexer.string()?;
                lexer.expect(")")?;
                Arg::Object(self.object(&format!("torch.device({})", repr_str(&device))))
            }
            Token::Name(name) if name.contains('.') && !name.starts_with('.') => {
                Arg::Object(self.object(name))
            }
            other => return Err(lexer.unexpected(&other, "an argument")),
        })
    }

    /// Arguments up to a closing sign, and whether a comma stands before it.
    fn items(
        &mut self,
        lexer: &mut Lexer<'_>,
        close: &str,
        depth: usize,
    ) -> Parsed<(Vec<Arg>, bool)> {
        let (mut items, mut has_comma) = (Vec::new(), false);
        while !lexer.takes(close) {
            let token = lexer.next()?;
            items.push(self.arg(lexer, token, depth - 1)?);
            has_comma = lexer.takes(",");
            if !has_comma {
                lexer.expect(close)?;
                break;
            }
        }
        Ok((items, has_comma))
    }

    fn dict(&mut self, lexer: &mut Lexer<'_>, depth: usize) -> Parsed<Arg> {
        let mut pairs = Vec::new();
        while !lexer.takes("}") {
            let token = lexer.next()?;
            let key = self.arg(lexer, token, depth - 1)?;
            if key.elements().is_some() || matches!(key, Arg::Node(_)) {
                return Err(lexer.error("a dictionary's keys are plain"));
            }
            lexer.expect(":")?;
            let token = lexer.next()?;
            pairs.push((key, self.arg(lexer, token, depth - 1)?));
            if !lexer.takes(",") {
                lexer.expect("}")?;
                break;
            }
        }
        Ok(self.graph.dict(&pairs))
    }

    fn number(&mut self, lexer: &Lexer<'_>, digits: &str, is_negative: bool) -> Parsed<Arg> {
        let text = if is_negative { format!("-{digits}") } else { digits.to_string() };
        if text.contains(['.', 'e', 'E']) {
            let value = text.parse().map_err(|_| lexer.error("a broken number"))?;
            return Ok(Arg::float(value));
        }
        if digits.len() > 1000 {
            return Err(lexer.error("a number of more than 1000 digits"));
        }
        Ok(match text.parse() {
            Ok(value) => Arg::int(value),
            Err(_) => self.graph.big_int(&text),
        })
    }

    fn returned(&mut self, lexer: &mut Lexer<'_>) -> Parsed<(Vec<Arg>, Vec<TensorType>)> {
        let (mut args, mut types) = (Vec::new(), Vec::new());
        while lexer.peek()? != Token::End {
            let token = lexer.next()?;
            let arg = self.arg(lexer, token, DEPTH)?;
            let is_number = matches!(
                arg,
                Arg::Constant(Constant::Bool(_) | Constant::Int(_) | Constant::Float(_))
            );
            if !is_number && !matches!(arg, Arg::Node(_)) {
                return Err(lexer.error("a program returns nodes and numbers"));
            }
            lexer.expect(":")?;
            args.push(arg);
            types.push(tensor_type(lexer)?);
            if !lexer.takes(",") {
                break;
            }
        }
        Ok((args, types))
    }

    fn finish(mut self) -> Parsed<Program> {
        let missing = |what: &str| Malformed::new(0, format!("the program has no {what}"));
        let (args, outputs) = self.outputs.ok_or_else(|| missing("return"))?;
        let takes = self.takes.ok_or_else(|| missing("takes"))?;
        let gives = self.gives.ok_or_else(|| missing("gives"))?;
        let default_dtype = self.default_dtype.ok_or_else(|| missing("default_dtype"))?;
        if takes.leaves() != self.inputs.len() || gives.leaves() != outputs.len() {
            let message = "takes and gives have a leaf for each input and output";
            return Err(Malformed::new(0, message));
        }
        for (node, len) in self.structures {
            self.graph.set_value(node, Value::Structure(len));
        }
        self.graph.set_outputs(&args);
        self.graph.verify().map_err(|error| Malformed::new(0, error.to_string()))?;
        Ok(Program {
            graph: self.graph,
            inputs: self.inputs,
            constants: self.constants,
            requirements: self.requirements,
            outputs,
            default_dtype,
            takes,
            gives,
        })
    }
}

fn dtype(lexer: &mut Lexer<'_>) -> Parsed<Dtype> {
    match lexer.next()? {
        Token::Name(name) => Dtype::from_name(name)
            .ok_or_else(|| lexer.error(&format!("there is no element type {name}"))),
        other => Err(lexer.unexpected(&other, "an element type")),
    }
}

fn tensor_type(lexer: &mut Lexer<'_>) -> Parsed<TensorType> {
    let dtype = dtype(lexer)?;
    lexer.expect("[")?;
    let mut sizes = Vec::new();
    while !lexer.takes("]") {
        sizes.push(match lexer.next()? {
            Token::Sign("?") => None,
            Token::Number(digits) => {
                let size = digits.parse().ok().filter(|size| i64::try_from(*size).is_ok());
                Some(size.ok_or_else(|| lexer.error("no size of a tensor"))?)
            }
            other => return Err(lexer.unexpected(&other, "a size")),
        });
        if !lexer.takes(",") {
            lexer.expect("]")?;
            break;
        }
    }
    if sizes.len() > DEPTH {
        return Err(lexer.error("a tensor of too many dimensions"));
    }
    Ok(TensorType { dtype, sizes: sizes.into() })
}
