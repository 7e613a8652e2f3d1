//! What the recorder makes of an object: one kind for each type, found once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyCFunction, PyCode, PyComplex, PyDict, PyEllipsis, PyFloat,
    PyFrozenSet, PyFunction, PyInt, PyList, PyMappingProxy, PyModule, PyNone, PyNotImplemented,
    PyRange, PySet, PySlice, PyString, PySuper, PyTuple, PyType,
};
use rustc_hash::FxHashMap;
use stator_cpython::heap::tensor;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use super::heap;

/// The variable kinds of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Deeply immutable, compared by value: numbers, strings, `None`, dtypes, ...
    Constant,
    /// `torch.Tensor`, `Parameter` or `Buffer`, wholly described by its metadata.
    Tensor,
    /// `list`, or a subclass with list storage.
    List,
    /// `tuple`, or a subclass with tuple storage (named tuples).
    Tuple,
    /// `dict`, or a subclass with dict storage.
    Dict,
    /// A `slice` whose bounds aren't all constants.
    Slice,
    /// `set`.
    Set,
    /// `frozenset`.
    FrozenSet,
    /// A Python function.
    Function,
    /// A function or bound method of a C type (`builtin_function_or_method`, descriptors of C types).
    Builtin,
    /// A bound method of a Python function.
    Method,
    /// A class.
    Type,
    /// A module.
    Module,
    /// `functools.partial`.
    Partial,
    /// `property`, `staticmethod`, `classmethod` and such: looked up, never a user's value.
    Descriptor,
    /// A `super()` object.
    Super,
    /// A closure cell.
    Cell,
    /// A member of an `enum.Enum`, or another object that's known by identity for good.
    Singleton,
    /// A code object.
    Code,
    /// An object that PyTorch calls like a function (`OpOverload`, ...); known by identity.
    TorchCallable,
    /// An iterator, generator or view of a C type.
    Iterator,
    /// An instance of any other class.
    Object,
    /// Something whose state can't be read without running unknown code.
    Opaque,
}

/// Kinds by type, for one trace. (Types may die between traces, so the table is short-lived.)
pub struct Kinds {
    by_type: FxHashMap<usize, Kind>,
    /// Those of types that never die.
    exact: &'static FxHashMap<usize, Kind>,
    /// The types met last, by some bits of their addresses: most questions end here.
    recent: [(usize, Kind); RECENT],
    native_state: FxHashMap<usize, bool>,
    /// How many transforms of `torch.func` run, one within the other: what stands for a tensor there is one.
    transforms: usize,
}

const RECENT: usize = 128;

/// Where the kind of a type's instances stands among the recent ones.
#[inline]
const fn slot(ty: usize) -> usize {
    ty >> 4 & (RECENT - 1)
}

struct Bases {
    exact: FxHashMap<usize, Kind>,
    tensor: Option<Py<PyType>>,
    enumeration: Py<PyType>,
    torch_callables: Vec<Py<PyType>>,
    opaque: Vec<Py<PyType>>,
}

fn bases(py: Python<'_>) -> PyResult<&'static Bases> {
    static BASES: PyOnceLock<Bases> = PyOnceLock::new();
    BASES.get_or_try_init(py, || Bases::find(py)).map(|bases| -> &'static Bases { bases })
}

impl Bases {
    fn find(py: Python<'_>) -> PyResult<Self> {
        let mut exact = FxHashMap::default();
        let mut add = |ty: &Bound<'_, PyType>, kind| {
            exact.insert(ty.as_ptr() as usize, kind);
        };
        macro_rules! exact {
            ($($kind:ident: $($ty:ty),*;)*) => { $($(add(&py.get_type::<$ty>(), Kind::$kind);)*)* };
        }
        exact! {
            Constant: PyNone, PyBool, PyInt, PyFloat, PyComplex, PyString, PyBytes, PyEllipsis,
                PyNotImplemented, PyRange;
            Slice: PySlice;
            List: PyList;
            Tuple: PyTuple;
            Dict: PyDict;
            Set: PySet;
            FrozenSet: PyFrozenSet;
            Function: PyFunction;
            Builtin: PyCFunction;
            Module: PyModule;
            Type: PyType;
            Code: PyCode;
            Super: PySuper;
            Iterator: PyMappingProxy;
            Opaque: PyByteArray;
        }
        let types = modules::import(py, "types")?;
        let mut named = |module: &Bound<'_, PyModule>, names: &[&str], kind| -> PyResult<()> {
            for name in names {
                if let Some(found) = module.getattr_opt(*name)? {
                    add(found.cast::<PyType>()?, kind);
                }
            }
            Ok(())
        };
        named(&types, &["MethodType"], Kind::Method)?;
        named(&types, &["CellType"], Kind::Cell)?;
        let builtin = [
            "MethodDescriptorType",
            "WrapperDescriptorType",
            "MethodWrapperType",
            "ClassMethodDescriptorType",
        ];
        named(&types, &builtin, Kind::Builtin)?;
        named(&types, &["GetSetDescriptorType", "MemberDescriptorType"], Kind::Descriptor)?;
        named(&types, &["GeneratorType", "CoroutineType", "AsyncGeneratorType"], Kind::Iterator)?;
        let builtins = modules::import(py, "builtins")?;
        named(&builtins, &["property", "staticmethod", "classmethod"], Kind::Descriptor)?;
        named(&builtins, &["enumerate", "zip", "map", "filter", "reversed"], Kind::Iterator)?;
        named(&modules::import(py, "functools")?, &["partial"], Kind::Partial)?;
        // Immutable; the same text may give another one, with the same answers.
        named(&modules::import(py, "re")?, &["Pattern"], Kind::Singleton)?;
        // `int | None`: the same.
        named(&types, &["UnionType"], Kind::Singleton)?;
        // What `re.sub` takes for a number that it wasn't given: from 3.13 on.
        named(&modules::import(py, "re")?, &["_ZeroSentinel"], Kind::Singleton)?;
        if let Ok(typing) = modules::import(py, "_typing") {
            // Of C code from 3.12 on; `P.args` gives another one each time, with the same answers.
            let parameters = ["ParamSpec", "ParamSpecArgs", "ParamSpecKwargs"];
            named(&typing, &parameters, Kind::Singleton)?;
        }
        // A method that is told its class.
        let method = py.eval(c"__import__('re').compile('').match", None, None)?;
        add(&method.get_type(), Kind::Builtin);
        for example in [
            c"iter([])",
            c"iter(())",
            c"iter({})",
            c"iter({}.values())",
            c"iter({}.items())",
            c"iter(set())",
            c"iter('')",
            c"iter('é')",
            c"iter(b'')",
            c"iter(range(0))",
            c"iter(range(2**70))",
            c"{}.keys()",
            c"{}.values()",
            c"{}.items()",
            c"__import__('collections').OrderedDict().keys()",
            c"__import__('collections').OrderedDict().values()",
            c"__import__('collections').OrderedDict().items()",
            c"iter(__import__('collections').OrderedDict())",
            c"reversed([])",
            c"reversed({})",
            c"reversed({}.values())",
            c"reversed({}.items())",
            c"iter(int, 0)",
            c"iter(memoryview(b''))",
        ] {
            let iterator = py.eval(example, None, None)?;
            add(&iterator.get_type(), Kind::Iterator);
        }
        let itertools = modules::import(py, "itertools")?;
        for (_, value) in itertools.dict().iter() {
            if let Ok(ty) = value.cast::<PyType>() {
                add(ty, Kind::Iterator);
            }
        }
        let enumeration = modules::import(py, "enum")?.getattr("Enum")?.cast_into()?.unbind();
        let mut bases =
            Bases { exact, tensor: None, enumeration, torch_callables: vec![], opaque: vec![] };
        if let Ok(torch) = modules::import(py, "torch") {
            bases.add_torch(&torch)?;
        }
        if let Ok(numpy) = modules::import(py, "numpy") {
            for name in ["ndarray", "generic"] {
                bases.opaque.push(numpy.getattr(name)?.cast_into()?.unbind());
            }
            // There are two of them for good; `numpy.bool_` in its first version.
            bases.exact.insert(numpy.getattr("bool_")?.as_ptr() as usize, Kind::Singleton);
            let random = modules::import(py, "numpy.random")?;
            for name in ["RandomState", "Generator"] {
                bases.exact.insert(random.getattr(name)?.as_ptr() as usize, Kind::Singleton);
            }
        }
        Ok(bases)
    }

    fn add_torch(&mut self, torch: &Bound<'_, PyModule>) -> PyResult<()> {
        self.tensor = Some(torch.getattr("Tensor")?.cast_into()?.unbind());
        for name in ["dtype", "layout", "memory_format", "qscheme", "device", "Size"] {
            let ty = torch.getattr(name)?;
            self.exact.insert(ty.as_ptr() as usize, Kind::Constant);
        }
        let nn = torch.getattr("nn")?;
        for ty in [torch.getattr("Tensor")?, nn.getattr("Parameter")?, nn.getattr("Buffer")?] {
            self.exact.insert(ty.as_ptr() as usize, Kind::Tensor);
        }
        for name in ["Generator", "Stream", "Event"] {
            self.exact.insert(torch.getattr(name)?.as_ptr() as usize, Kind::Singleton);
        }
        // `torch.__version__`: a text with comparisons in Python.
        let version = modules::import(torch.py(), "torch.torch_version")?;
        if let Some(ty) = version.getattr_opt("TorchVersion")? {
            self.exact.insert(ty.as_ptr() as usize, Kind::Singleton);
        }
        let ops = torch.getattr("_ops")?;
        for name in ["OpOverload", "OpOverloadPacket", "_OpNamespace", "_Ops"] {
            if let Some(ty) = ops.getattr_opt(name)? {
                self.torch_callables.push(ty.cast_into()?.unbind());
            }
        }
        let library = modules::import(torch.py(), "torch._library.custom_ops")?;
        if let Some(ty) = library.getattr_opt("CustomOpDef")? {
            self.torch_callables.push(ty.cast_into()?.unbind());
        }
        let c = torch.getattr("_C")?;
        if let Some(ty) = c.getattr_opt("_SDPBackend")? {
            // An enumeration of C++: a member is an attribute of it.
            self.exact.insert(ty.as_ptr() as usize, Kind::Singleton);
        }
        for name in ["ScriptFunction", "ScriptMethod", "ScriptObject"] {
            if let Some(ty) = c.getattr_opt(name)? {
                self.opaque.push(ty.cast_into()?.unbind());
            }
        }
        Ok(())
    }

    fn classify(&self, ty: &Bound<'_, PyType>) -> PyResult<Kind> {
        let py = ty.py();
        let below = |base: &Py<PyType>| ty.is_subclass_of_type(base.bind(py));
        if let Some(tensor) = &self.tensor
            && below(tensor)
        {
            // Other subclasses may override `__torch_function__`: what runs is theirs to say.
            return Ok(Kind::Opaque);
        }
        if self.torch_callables.iter().any(&below) {
            return Ok(Kind::TorchCallable);
        }
        if self.opaque.iter().any(&below) {
            return Ok(Kind::Opaque);
        }
        if below(&self.enumeration) {
            return Ok(Kind::Singleton);
        }
        let storage = |kind: &Bound<'_, PyType>| ty.is_subclass_of_type(kind);
        Ok(if storage(&py.get_type::<PyType>()) {
            Kind::Type
        } else if storage(&py.get_type::<PyTuple>()) {
            Kind::Tuple
        } else if storage(&py.get_type::<PyDict>()) {
            Kind::Dict
        } else if storage(&py.get_type::<PyModule>()) {
            Kind::Module
        } else if storage(&py.get_type::<PyList>()) {
            Kind::List
        } else if storage(&py.get_type::<PySet>()) || storage(&py.get_type::<PyFrozenSet>()) {
            Kind::Opaque
        } else {
            Kind::Object
        })
    }
}

/// Subclass test by the method resolution order alone: no `__subclasscheck__` runs.
trait IsSubclass {
    fn is_subclass_of_type(&self, base: &Bound<'_, PyType>) -> bool;
}

impl IsSubclass for Bound<'_, PyType> {
    fn is_subclass_of_type(&self, base: &Bound<'_, PyType>) -> bool {
        stator_cpython::generic::is_subtype(self, base)
    }
}

impl Kinds {
    /// The table of one trace.
    ///
    /// # Errors
    /// If a type of PyTorch or of the standard library is missing.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            exact: &bases(py)?.exact,
            by_type: FxHashMap::default(),
            recent: [(0, Kind::Opaque); RECENT],
            native_state: FxHashMap::default(),
            transforms: 0,
        })
    }

    /// The kind of an object.
    #[inline]
    pub fn of(&mut self, object: Borrowed<'_, '_>) -> Kind {
        let address = stator_cpython::heap::types::address_of(object);
        match self.recent[slot(address)] {
            (known, kind) if known == address && !matches!(kind, Kind::Slice | Kind::Tensor) => {
                kind
            }
            _ => self.find(object, address),
        }
    }

    /// The kind of an object whose type wasn't asked for lately, or doesn't tell it alone. Apart, so that
    /// what is asked for all the time saves no registers.
    #[inline(never)]
    fn find(&mut self, object: Borrowed<'_, '_>, address: usize) -> Kind {
        let (known, mut kind) = self.recent[slot(address)];
        if known != address {
            kind = self.of_type(&object.get_type());
            self.recent[slot(address)] = (address, kind);
        }
        match kind {
            Kind::Slice if heap::is_constant(object) => Kind::Constant,
            // Other tensors hold what no guard compares: each use of one is a break.
            Kind::Tensor if !tensor::is_ordinary(object, false) => {
                let stands_in = self.by_type.get(&address) == Some(&Kind::Tensor);
                let is_known = stands_in && tensor::is_ordinary(object, true)
                    || self.transforms > 0 && tensor::is_transformed(object);
                if is_known { kind } else { Kind::Opaque }
            }
            _ => kind,
        }
    }

    /// A transform of `torch.func` begins.
    pub fn begin_transform(&mut self) {
        self.transforms += 1;
    }

    /// The innermost transform has ended.
    pub fn end_transform(&mut self) {
        self.transforms = self.transforms.saturating_sub(1);
    }

    /// Whether a transform runs.
    #[inline]
    pub fn is_transforming(&self) -> bool {
        self.transforms > 0
    }

    /// Says what the instances of the type at an address are.
    pub fn set(&mut self, ty: usize, kind: Kind) {
        self.by_type.insert(ty, kind);
        self.recent = [(0, Kind::Opaque); RECENT];
    }

    /// Whether C code reads state of this type's instances without asking a special method.
    pub fn has_native_state(&mut self, ty: &Bound<'_, PyType>) -> bool {
        *self
            .native_state
            .entry(ty.as_ptr() as usize)
            .or_insert_with(|| stator_cpython::heap::types::has_native_state(ty.as_borrowed()))
    }

    /// The kind of an object's type.
    fn of_type(&mut self, ty: &Bound<'_, PyType>) -> Kind {
        let address = ty.as_ptr() as usize;
        if let Some(&kind) = self.by_type.get(&address).or_else(|| self.exact.get(&address)) {
            return kind;
        }
        let kind = bases(ty.py()).and_then(|bases| bases.classify(ty)).unwrap_or(Kind::Opaque);
        self.by_type.insert(address, kind);
        kind
    }
}

/// Whether iterators of this type only hand out what a builtin container holds, or run a Python
/// frame: no C code of theirs calls a tensor operation.
#[must_use]
pub fn is_plain_iterator(ty: &Bound<'_, PyType>) -> bool {
    static PLAIN: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    let py = ty.py();
    let plain = PLAIN.get_or_init(py, || {
        let sources = [
            c"iter([])",
            c"iter(())",
            c"iter(range(0))",
            c"iter({})",
            c"iter({}.items())",
            c"iter({}.values())",
            c"iter('')",
            c"(x for x in ())",
        ];
        let types = sources.iter().filter_map(|source| py.eval(source, None, None).ok());
        types.map(|iterator| iterator.get_type().into_any().unbind()).collect()
    });
    plain.iter().any(|known| known.is(ty))
}

/// How a class attribute binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// A Python function or a method descriptor of a C type.
    Function,
    /// `property`.
    Property,
    /// A `__slots__` member, or a field of a C type.
    Member,
    /// A computed attribute of a C type.
    GetSet,
    /// A field of a named tuple, or of a structure of C code that is an item of it.
    TupleGetter,
    /// `staticmethod`.
    StaticMethod,
    /// `classmethod`.
    ClassMethod,
    /// A user's descriptor with `__get__` only.
    User,
    /// A user's descriptor with `__set__` or `__delete__`.
    UserData,
    /// No descriptor.
    Value,
}
