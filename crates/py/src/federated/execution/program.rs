//! Tensor programs run on tensors alone, without containers around them: for one client, and for several at once.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use stator_federated::execution::{Draw, Value, of_type};
use stator_federated::types::{TensorType, Type, TypeKind};

use super::batch::Batch;
use super::hidden::hide;
use super::kernels::in_context;
use super::leaf::{Leaf, to_leaf};
use super::padding::{Together, together};
use super::payload::settled;
use super::stack::{Convert, stacked};
use super::torch::{Torch, sizes};
use crate::federated::types;

/// How many structs are few, one in the other.
const FEW: usize = 16;

/// How many sizes of inputs are remembered as those of a program.
const REMEMBERED: usize = 4096;

/// A program, and how it is run.
pub struct Flat {
    /// What runs it where this can't.
    runner: Py<PyAny>,
    run: Py<PyAny>,
    /// The same with PyTorch set as the program expects it.
    apart: Py<PyAny>,
    check: Py<PyAny>,
    /// For each input, whether its sizes differ between values of the type.
    varies: Vec<bool>,
    /// In which dimension, the first one that does.
    rows_at: Vec<usize>,
    /// Whether that is the number of rows in all of them.
    has_rows: bool,
    /// Whether the program may write to its inputs.
    copies: bool,
    /// Whether it may set something of them, such as that they need gradients.
    marks: bool,
    is_pure: bool,
    default_dtype: Py<PyAny>,
    /// Whether it switches autocast, so that something has to see to that where it raises.
    switches: bool,
    most_bytes: u64,
    /// How few clients it runs at once, if they have as many rows, and if some are padded.
    least_at_once: (usize, usize),
    convert: Convert,
    parameter: Option<Type>,
    result: Type,
    /// Whether structs in the result are in few others.
    is_shallow: bool,
    outputs: Vec<TensorType>,
    /// What the inputs were at last: several clients have the same ones.
    given: Mutex<Vec<Option<Given>>>,
    /// Sizes of the inputs that vary, where they fit.
    fitting: Mutex<FxHashSet<Vec<u64>>>,
    /// Where there is another program for each of some sizes: the function type of all.
    variants_of: Option<Type>,
    /// These programs, by the sizes of the inputs that vary.
    variants: Mutex<FxHashMap<Vec<u64>, Arc<Flat>>>,
}

/// An input as it was given at last.
struct Given {
    leaf: Leaf,
    /// Its tensor, from the second time on, which nobody sets anything of.
    tensor: Option<Py<PyAny>>,
}

/// Whose random numbers clients that run together draw.
pub struct Drawn<'py> {
    /// What makes them.
    pub numbers: Bound<'py, PyAny>,
    /// Those of the first client.
    pub first: Draw,
}

impl<'py> Drawn<'py> {
    /// Calls a method for the client that comes so many after the first one.
    fn of(&self, method: &str, at: usize) -> PyResult<Bound<'py, PyAny>> {
        let draw = self.first.after(at);
        self.numbers.call_method1(method, (draw.map, draw.client))
    }
}

impl Flat {
    /// How `runner` is run on tensors. `None`: it has to be called.
    ///
    /// # Errors
    /// What asking it raises.
    pub fn of(runner: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Option<Self>> {
        let py = runner.py();
        let Some(flat) = runner.getattr_opt("flat")? else { return Ok(None) };
        let of = ty.as_function().expect("a compiled computation is of a function type");
        let parameter = of.parameter.as_ref().map(|of| types::wrap(py, of)).transpose()?;
        let found = flat.call1((parameter, types::wrap(py, &of.result)?))?;
        if found.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            runner: runner.clone().unbind(),
            run: found.getattr("run")?.unbind(),
            apart: found.getattr("apart")?.unbind(),
            check: found.getattr("check")?.unbind(),
            varies: found.getattr("varies")?.extract()?,
            rows_at: found.getattr("rows_at")?.extract()?,
            has_rows: found.getattr("has_rows")?.extract()?,
            copies: found.getattr("copies")?.extract()?,
            marks: found.getattr("marks")?.extract()?,
            is_pure: found.getattr("is_pure")?.extract()?,
            default_dtype: found.getattr("default_dtype")?.unbind(),
            switches: found.getattr("switches")?.extract()?,
            most_bytes: found.getattr("most_bytes")?.extract()?,
            least_at_once: found.getattr("least_at_once")?.extract()?,
            convert: Convert::new(py)?,
            parameter: of.parameter.clone(),
            result: of.result.clone(),
            is_shallow: is_shallow(&of.result, FEW),
            outputs: tensor_types(&of.result),
            given: Mutex::default(),
            fitting: Mutex::default(),
            variants_of: found.getattr("has_variants")?.is_truthy()?.then(|| ty.clone()),
            variants: Mutex::default(),
        }))
    }

    /// The program for what is given; `None`: this one.
    fn variant(&self, py: Python<'_>, leaves: &[Leaf]) -> PyResult<Option<Arc<Self>>> {
        let Some(ty) = &self.variants_of else { return Ok(None) };
        let mut sizes = Vec::new();
        self.varying(py, leaves, &mut sizes)?;
        let variants = || self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = variants().get(&sizes) {
            return Ok(Some(Arc::clone(known)));
        }
        let runner = self.runner.bind(py).call_method1("variant", (&sizes,))?;
        let Some(made) = Self::of(&runner, ty)? else { return Ok(None) };
        // Sizes that one program is for run together.
        let known = variants().values().find(|known| known.runner.is(&runner)).cloned();
        let made = known.unwrap_or_else(|| Arc::new(made));
        let mut variants = variants();
        if variants.len() < REMEMBERED {
            variants.insert(sizes, Arc::clone(&made));
        }
        Ok(Some(made))
    }

    /// Whether it surely draws no random numbers.
    pub fn is_pure(&self) -> bool {
        self.is_pure
    }

    /// What it gives for an argument. `None`: it has to be called.
    ///
    /// # Errors
    /// What an operation raises.
    pub fn run(
        &self,
        py: Python<'_>,
        argument: Option<&Value<Leaf>>,
    ) -> PyResult<Option<Value<Leaf>>> {
        let Some(leaves) = self.leaves(py, argument)? else { return Ok(None) };
        match self.variant(py, &leaves).map_err(|error| hide(py, error, true))? {
            Some(variant) => variant.run_on(py, &leaves).map(Some),
            None => self.run_on(py, &leaves).map(Some),
        }
    }

    /// What it gives for each of several arguments. `None`: it has to run for one after the other.
    ///
    /// # Errors
    /// What isn't the program's.
    pub fn run_together(
        &self,
        py: Python<'_>,
        arguments: &[Value<Leaf>],
        drawn: Option<&Drawn<'_>>,
    ) -> PyResult<Option<Vec<Value<Leaf>>>> {
        let mut rows = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match self.leaves(py, Some(argument)) {
                Ok(Some(leaves)) => rows.push(leaves),
                // What is wrong with one is said when it is run alone.
                _ => return Ok(None),
            }
        }
        let mut results: Vec<Option<Value<Leaf>>> = vec![None; rows.len()];
        if self.variants_of.is_none() {
            let clients = (0..rows.len()).collect();
            let is_done = self.run_some(py, &rows, clients, drawn, &mut results)?;
            return Ok(results.into_iter().collect::<Option<_>>().filter(|_| is_done));
        }
        let mut parts: Vec<(Arc<Self>, Vec<usize>)> = Vec::new();
        for (client, row) in rows.iter().enumerate() {
            // What is wrong with one is said when it is run alone.
            let Ok(Some(variant)) = self.variant(py, row) else { return Ok(None) };
            match parts.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &variant)) {
                Some((_, clients)) => clients.push(client),
                None => parts.push((variant, vec![client])),
            }
        }
        for (variant, clients) in parts {
            let at_once: usize = variant.runner.bind(py).getattr("clients_at_once")?.extract()?;
            if at_once > 1 && variant.run_some(py, &rows, clients.clone(), drawn, &mut results)? {
                continue;
            }
            for client in clients {
                drawn.map(|drawn| drawn.of("become", client)).transpose()?;
                match variant.run_on(py, &rows[client]) {
                    Ok(value) => results[client] = Some(value),
                    Err(error) if error.is_instance_of::<PyException>(py) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(results.into_iter().collect())
    }

    /// What it gives for some of the clients, among the results of all. Whether it could.
    fn run_some(
        &self,
        py: Python<'_>,
        rows: &[Vec<Leaf>],
        clients: Vec<usize>,
        drawn: Option<&Drawn<'_>>,
        results: &mut [Option<Value<Leaf>>],
    ) -> PyResult<bool> {
        let mut left = self.groups(py, rows, clients)?;
        while let Some(group) = left.pop() {
            if group.is_padded() && !self.pads_group(py, &group)? {
                let finer = if self.pads(py)? { group.finer(self.few(py)?) } else { None };
                left.extend(finer.unwrap_or_else(|| group.apart()));
                continue;
            }
            let most = self.at_once(py, &rows[group.largest()])?;
            // A few are quicker one after the other.
            let (equal, padded) = self.least_at_once;
            let least = if group.is_padded() { padded } else { equal };
            let most = if most.min(group.clients().len()) < least { 1 } else { most };
            for part in group.chunks(most) {
                let made = match part.clients() {
                    &[alone] => {
                        drawn.map(|drawn| drawn.of("become", alone)).transpose()?;
                        self.run_on(py, &rows[alone]).map(|value| Some(vec![value]))
                    }
                    _ => self.run_part(py, rows, &part, drawn),
                };
                let values = match made {
                    Ok(Some(values)) => values,
                    Ok(None) if part.is_padded() => {
                        let finer = if self.pads(py)? { part.finer(self.few(py)?) } else { None };
                        left.extend(finer.unwrap_or_else(|| part.apart()));
                        continue;
                    }
                    Ok(None) => return Ok(false),
                    Err(error) if error.is_instance_of::<PyException>(py) => {
                        self.runner.call_method1(py, "failed", (error.value(py),))?;
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                };
                for (&client, value) in part.clients().iter().zip(values) {
                    results[client] = Some(value);
                }
            }
        }
        Ok(true)
    }

    /// Whether PyTorch is set as the program expects it.
    fn is_usual(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(torch) = Torch::get(py)? else { return Ok(false) };
        if self.switches || torch.is_any_autocast_on(py)? {
            return Ok(false);
        }
        let module = torch.module(py);
        let asked = |name| module.call_method0(name)?.is_truthy();
        Ok(!asked(intern!(py, "is_inference_mode_enabled"))?
            && asked(intern!(py, "is_grad_enabled"))?
            && module.call_method0(intern!(py, "get_default_dtype"))?.is(&self.default_dtype))
    }

    /// The tensors in an argument, in their order; what is in sequences is stacked. `None`: it isn't one.
    fn leaves(
        &self,
        py: Python<'_>,
        argument: Option<&Value<Leaf>>,
    ) -> PyResult<Option<Vec<Leaf>>> {
        let mut leaves = Vec::with_capacity(self.varies.len());
        if let (Some(argument), Some(parameter)) = (argument, &self.parameter) {
            let mut left = vec![(argument, parameter)];
            while let Some((value, ty)) = left.pop() {
                match (value, ty.kind()) {
                    (Value::Leaf(leaf), TypeKind::Tensor(_)) => leaves.push(leaf.clone()),
                    (Value::Struct(fields), TypeKind::Struct(structure)) => {
                        left.extend(
                            fields
                                .iter()
                                .zip(structure.fields())
                                .rev()
                                .map(|(value, field)| (value, &field.ty)),
                        );
                    }
                    (Value::Sequence(elements), TypeKind::Sequence(_)) if elements.is_empty() => {
                        return Ok(None);
                    }
                    (Value::Sequence(elements), TypeKind::Sequence(of)) => {
                        let rows: Vec<Vec<&Leaf>> = elements.iter().map(in_structs).collect();
                        for at in 0..tensor_types(of).len() {
                            let column: Option<Vec<&Leaf>> =
                                rows.iter().map(|row| row.get(at).copied()).collect();
                            let Some(column) = column else { return Ok(None) };
                            leaves.push(Leaf::new(stacked(py, &column, &self.convert)?));
                        }
                    }
                    _ => return Ok(None),
                }
            }
        }
        Ok((leaves.len() == self.varies.len()).then_some(leaves))
    }

    fn run_on(&self, py: Python<'_>, leaves: &[Leaf]) -> PyResult<Value<Leaf>> {
        let tensors = PyTuple::new(py, self.tensors(py, leaves)?)?;
        let without_frames = |error: &PyErr| error.set_traceback(py, None);
        let results = if self.is_usual(py)? {
            self.check(py, leaves, &tensors).inspect_err(without_frames)?;
            in_context(self.run.bind(py), PyTuple::new(py, [&tensors])?, None)
        } else {
            in_context(self.apart.bind(py), tensors.clone(), None)
        };
        let results = results.inspect_err(without_frames)?;
        let results = results.cast_into::<PyList>()?;
        let mut made = Vec::with_capacity(self.outputs.len());
        for (result, ty) in results.iter().zip(&self.outputs) {
            match output(&result, ty)? {
                Some(leaf) => made.push(leaf),
                None => break,
            }
        }
        if made.len() == self.outputs.len() && results.len() == made.len() {
            return Ok(nested(&self.result, &mut made.into_iter()));
        }
        self.finished(py, &results, &tensors).inspect_err(without_frames)
    }

    /// The value, where what the operations gave isn't tensors of the result's types.
    fn finished(
        &self,
        py: Python<'_>,
        results: &Bound<'_, PyList>,
        given: &Bound<'_, PyTuple>,
    ) -> PyResult<Value<Leaf>> {
        let object = self.runner.bind(py).call_method1("finished", (results, given))?;
        settled(object, "the result of a program", &self.result)
    }

    /// The inputs. What several clients have is converted once.
    fn tensors<'py>(&self, py: Python<'py>, leaves: &[Leaf]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut known = std::mem::take(&mut *self.given());
        // Another thread may have them.
        known.resize_with(leaves.len(), || None);
        let mut tensors = Vec::with_capacity(leaves.len());
        for (leaf, known) in leaves.iter().zip(&mut known) {
            tensors.push(self.tensor(py, leaf, known)?);
        }
        let old = std::mem::replace(&mut *self.given(), known);
        drop(old);
        Ok(tensors)
    }

    fn given(&self) -> MutexGuard<'_, Vec<Option<Given>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensor<'py>(
        &self,
        py: Python<'py>,
        leaf: &Leaf,
        known: &mut Option<Given>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(given) = known.as_mut().filter(|given| given.leaf.is(leaf)) else {
            let tensor = self.convert.own(py, leaf)?;
            *known = Some(Given { leaf: leaf.clone(), tensor: None });
            return if self.copies { tensor.call_method0("clone") } else { Ok(tensor) };
        };
        let tensor = match &given.tensor {
            Some(tensor) => tensor.bind(py).clone(),
            None => {
                let tensor = self.convert.own(py, leaf)?;
                given.tensor = Some(tensor.clone().unbind());
                tensor
            }
        };
        match (self.copies, self.marks) {
            (true, _) => tensor.call_method0(intern!(py, "clone")),
            (_, true) => tensor.call_method0(intern!(py, "detach")),
            _ => Ok(tensor),
        }
    }

    /// Fails if tensors don't fit, which their types may leave open.
    fn check(&self, py: Python<'_>, leaves: &[Leaf], tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
        let mut found = Vec::new();
        self.varying(py, leaves, &mut found)?;
        let fitting = || self.fitting.lock().unwrap_or_else(PoisonError::into_inner);
        if fitting().contains(&found) {
            return Ok(());
        }
        self.check.bind(py).call1((tensors,))?;
        let mut fitting = fitting();
        if fitting.len() < REMEMBERED {
            fitting.insert(found);
        }
        Ok(())
    }

    /// Adds the sizes of the inputs whose sizes vary.
    fn varying(&self, py: Python<'_>, leaves: &[Leaf], found: &mut Vec<u64>) -> PyResult<()> {
        for (leaf, _) in leaves.iter().zip(&self.varies).filter(|(_, varies)| **varies) {
            match leaf.known_sizes() {
                Some(sizes) => found.extend_from_slice(sizes),
                None => found.extend(sizes(leaf.bind(py)?)?),
            }
        }
        Ok(())
    }

    /// The clients whose tensors have the same sizes, together; where they may be padded, those with about as many
    /// rows.
    fn groups(
        &self,
        py: Python<'_>,
        rows: &[Vec<Leaf>],
        clients: Vec<usize>,
    ) -> PyResult<Vec<Together>> {
        if !self.varies.contains(&true) {
            return Ok(vec![Together::equal(clients)]);
        }
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut known: FxHashMap<Vec<u64>, usize> = FxHashMap::default();
        let mut found = Vec::new();
        for client in clients {
            found.clear();
            self.varying(py, &rows[client], &mut found)?;
            let group = known.get(&found).copied().unwrap_or(groups.len());
            if group == groups.len() {
                known.insert(found.clone(), group);
                groups.push(Vec::new());
            }
            groups[group].push(client);
        }
        if groups.len() == 1 || !self.has_rows || !self.pads(py)? {
            return Ok(groups.into_iter().map(Together::equal).collect());
        }
        let groups = groups
            .into_iter()
            .map(|clients| Ok((self.counts_of_rows(py, &rows[clients[0]])?, clients)));
        Ok(together(groups.collect::<PyResult<_>>()?, self.few(py)?))
    }

    /// How many rows are so few that clients with fewer run with those that have so many.
    fn few(&self, py: Python<'_>) -> PyResult<usize> {
        self.runner.bind(py).getattr(intern!(py, "few"))?.extract()
    }

    /// Whether clients with other numbers of rows may be run together.
    fn pads(&self, py: Python<'_>) -> PyResult<bool> {
        self.runner.bind(py).getattr(intern!(py, "pads"))?.extract()
    }

    /// Whether the clients of a group may be run together, which have different numbers of rows.
    fn pads_group(&self, py: Python<'_>, group: &Together) -> PyResult<bool> {
        let too_many = self.runner.bind(py).getattr(intern!(py, "too_many_rows"))?;
        let too_many: Option<usize> = too_many.extract()?;
        Ok(self.pads(py)? && too_many.is_none_or(|too_many| group.most_rows() < too_many))
    }

    /// How many rows a client has, in each input that has some.
    fn counts_of_rows(&self, py: Python<'_>, row: &[Leaf]) -> PyResult<Option<Vec<usize>>> {
        let mut found = Vec::new();
        for (at, leaf) in row.iter().enumerate().filter(|(at, _)| self.varies[*at]) {
            let place = self.rows_at[at];
            let count = match leaf.known_sizes() {
                Some(sizes) => sizes.get(place).copied(),
                None => sizes(leaf.bind(py)?)?.get(place).copied(),
            };
            let Some(count) = count else { return Ok(None) };
            found.push(count as usize);
        }
        Ok(Some(found))
    }

    /// For how many clients with inputs of these sizes it runs at once.
    fn at_once(&self, py: Python<'_>, row: &[Leaf]) -> PyResult<usize> {
        let mut bytes = 0u64;
        for leaf in row {
            bytes += leaf.bind(py)?.getattr(intern!(py, "nbytes"))?.extract::<u64>()?;
        }
        Ok((self.most_bytes / bytes.max(1)).max(1) as usize)
    }

    /// What it gives for some clients together.
    fn run_part(
        &self,
        py: Python<'_>,
        rows: &[Vec<Leaf>],
        part: &Together,
        drawn: Option<&Drawn<'_>>,
    ) -> PyResult<Option<Vec<Value<Leaf>>>> {
        let columns = PyList::empty(py);
        let (lengths, part) = (part.lengths(), part.clients());
        for (input, varies) in self.varies.iter().enumerate() {
            let column: Vec<&Leaf> = part.iter().map(|&client| &rows[client][input]).collect();
            if *varies && lengths.is_some() {
                let own = column.iter().map(|leaf| self.convert.own(py, leaf));
                columns.append(own.collect::<PyResult<Vec<_>>>()?)?;
            } else {
                columns.append(self.column(py, &column)?)?;
            }
        }
        let together = self.runner.bind(py).getattr(intern!(py, "together"))?;
        let states = match drawn {
            Some(drawn) => {
                let states = part.iter().map(|&client| drawn.of("state", client));
                Some(PyList::new(py, states.collect::<PyResult<Vec<_>>>()?)?)
            }
            None => None,
        };
        let arguments = (part.len(), columns, states, lengths).into_pyobject(py)?;
        let results = in_context(&together, arguments, None)?;
        let Ok(results) = results.cast::<PyList>() else { return Ok(None) };
        let mut batches = Vec::with_capacity(self.outputs.len());
        for (result, ty) in results.iter().zip(&self.outputs) {
            match Batch::of(&result, ty, part.len())? {
                Some(batch) => batches.push(Arc::new(batch)),
                None => return Ok(None),
            }
        }
        let value = |at| {
            let mut leaves = batches.iter().map(|batch| Leaf::row(batch, at));
            match self.is_shallow {
                true => nested_in_few(&self.result, &mut leaves),
                false => nested(&self.result, &mut leaves),
            }
        };
        Ok(Some((0..part.len()).map(value).collect()))
    }

    /// The tensors of clients for one input in one.
    fn column<'py>(&self, py: Python<'py>, column: &[&Leaf]) -> PyResult<Bound<'py, PyAny>> {
        if column.iter().all(|leaf| leaf.is(column[0])) {
            let tensor = self.convert.own(py, column[0])?;
            let mut dims = vec![column.len() as u64];
            dims.extend(sizes(&tensor)?);
            let all = tensor.call_method1("expand", (dims,))?;
            return if self.copies { all.call_method0("contiguous") } else { Ok(all) };
        }
        stacked(py, column, &self.convert)
    }
}

/// What an operation gave, as a tensor of the type; `None` if it is neither one nor a number.
fn output(result: &Bound<'_, PyAny>, ty: &TensorType) -> PyResult<Option<Leaf>> {
    let py = result.py();
    // Numbers come of sizes.
    let is_number = result.is_exact_instance_of::<PyBool>()
        || result.is_exact_instance_of::<PyInt>()
        || result.is_exact_instance_of::<PyFloat>();
    if is_number {
        return Ok(to_leaf(result, ty).ok());
    }
    if !Torch::get(py)?.is_some_and(|torch| torch.is_plain(result)) {
        return Ok(None);
    }
    let own = match result.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
        true => &result.call_method0(intern!(py, "detach"))?,
        false => result,
    };
    Ok(to_leaf(own, ty).ok())
}

/// The types of the tensors in a type, in their order.
fn tensor_types(ty: &Type) -> Vec<TensorType> {
    let mut left = vec![ty];
    let mut found = Vec::new();
    while let Some(ty) = left.pop() {
        match ty.kind() {
            TypeKind::Tensor(tensor) => found.push(tensor.clone()),
            TypeKind::Struct(structure) => {
                left.extend(structure.fields().iter().rev().map(|field| &field.ty));
            }
            TypeKind::Sequence(element) => left.push(element),
            _ => {}
        }
    }
    found
}

/// The tensors in structs, in their order.
fn in_structs(value: &Value<Leaf>) -> Vec<&Leaf> {
    let mut left = vec![value];
    let mut found = Vec::new();
    while let Some(value) = left.pop() {
        match value {
            Value::Leaf(leaf) => found.push(leaf),
            Value::Struct(fields) => left.extend(fields.iter().rev()),
            _ => {}
        }
    }
    found
}

/// Whether structs in a type are in no more than so many others.
fn is_shallow(ty: &Type, most: usize) -> bool {
    match ty.as_struct() {
        Some(structure) => {
            most > 0 && structure.fields().iter().all(|field| is_shallow(&field.ty, most - 1))
        }
        None => true,
    }
}

/// The value of a type with these tensors, where its structs are in few others.
fn nested_in_few(ty: &Type, leaves: &mut dyn Iterator<Item = Leaf>) -> Value<Leaf> {
    match ty.as_struct() {
        Some(structure) => {
            let fields = structure.fields().iter();
            Value::structure(fields.map(|field| nested_in_few(&field.ty, leaves)).collect())
        }
        None => Value::Leaf(leaves.next().expect("one for each tensor")),
    }
}

/// The value of a type, a struct of tensors, with these tensors.
fn nested(ty: &Type, leaves: &mut dyn Iterator<Item = Leaf>) -> Value<Leaf> {
    let part =
        |_: &Type| Ok::<_, Infallible>(Value::Leaf(leaves.next().expect("one for each tensor")));
    let Ok(value) = of_type(ty, part);
    value
}
