//! Graphs and places shared by the tests.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::rc::Rc;

use stator_graph::{
    Arg, Device, Dtype, Graph, Locate, Location, NodeId, Operator, StackId, Target, TensorMeta,
    Value,
};

/// Places of a program whose only code object is number 0: the instruction is the line.
pub struct Program {
    pub file: &'static str,
    pub lines: &'static [(u32, &'static str)],
}

impl Locate for Program {
    fn locate(&self, code: u32, instruction: u32) -> Option<Rc<Location>> {
        let file = if code == 0 { self.file } else { "torch/nn/modules/linear.py" };
        let text = self.lines.iter().find(|(line, _)| *line == instruction);
        Some(Rc::new(Location {
            file: file.to_owned(),
            line: instruction,
            function: "fn".to_owned(),
            code: text.map_or("", |(_, text)| text).to_owned(),
            is_library: code != 0,
        }))
    }
}

pub const FLOAT32: Dtype = Dtype(6);

pub fn contiguous(graph: &mut Graph, sizes: &[i64]) -> TensorMeta {
    let mut strides: Vec<i64> = sizes
        .iter()
        .rev()
        .scan(1, |next, size| {
            let stride = *next;
            *next *= size.max(&1);
            Some(stride)
        })
        .collect();
    strides.reverse();
    graph.tensor_meta(FLOAT32, Device::CPU, sizes, &strides, false)
}

pub fn tensor(graph: &mut Graph, source: &str, sizes: &[i64]) -> NodeId {
    let meta = contiguous(graph, sizes);
    graph.placeholder(source, Value::Tensor(meta))
}

pub fn operator(graph: &mut Graph, op: Operator, args: &[Arg], at: StackId) -> NodeId {
    graph.call(Target::Operator(op), args, Some(at))
}

pub fn method(graph: &mut Graph, name: &str, args: &[Arg], at: StackId) -> NodeId {
    let name = graph.intern(name);
    graph.call(Target::Method { name, object: None }, args, Some(at))
}

pub fn function(graph: &mut Graph, name: &str, args: &[Arg], at: StackId) -> NodeId {
    let object = graph.add_object(name);
    let name = graph.intern(name);
    graph.call(Target::Function { name, object }, args, Some(at))
}

/// The deep dive's first example.
pub fn mse() -> (Graph, Program) {
    let mut graph = Graph::new();
    let (x, y) = (tensor(&mut graph, "L['x']", &[200]), tensor(&mut graph, "L['y']", &[200]));
    let line5 = graph.stack(None, 0, 5);
    let sub = operator(&mut graph, Operator::Sub, &[Arg::Node(x), Arg::Node(y)], line5);
    let z = operator(&mut graph, Operator::Pow, &[Arg::Node(sub), Arg::int(2)], line5);
    graph.set_local_name(z, "z");
    let line6 = graph.stack(None, 0, 6);
    let sum = method(&mut graph, "sum", &[Arg::Node(z)], line6);
    graph.set_outputs(&[Arg::Node(sum)]);
    let lines = &[(5, "z = (x - y) ** 2"), (6, "return z.sum()")];
    (graph, Program { file: "example.py", lines })
}
