//! Who is told of warnings and log records, and whether all of it is code that neither looks at nor
//! changes what a traced program works with: the handlers and formatters of the standard library
//! (and of pytest), on streams written in C, and lists that records are appended to.
//!
//! Nothing here runs Python code. It is asked while recording and again before each replay, because
//! handlers and filters come and go between calls.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCFunction, PyDict, PyFunction, PyList, PyString, PyTuple, PyType};
use smallvec::SmallVec;
use stator_cpython::heap::dict::InstanceDict;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::{dict, types};
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{generic, vectorcall};

use crate::list_handlers::{self, entry, method, own};

/// The lists that a warning or record is appended to, by address.
pub type Kept = SmallVec<[usize; 2]>;

/// Methods of a logger that make and pass on a record.
const LOGGER: &[&str] =
    &["handle", "makeRecord", "callHandlers", "filter", "findCaller", "getEffectiveLevel"];
/// Methods of a handler.
const HANDLER: &[&str] = &["handle", "filter", "acquire", "release", "format", "handleError"];
/// Methods of a formatter.
const FORMATTER: &[&str] =
    &["format", "formatTime", "formatException", "formatStack", "formatMessage", "usesTime"];
/// More handlers and parents than anybody has.
const MOST: usize = 64;

/// What is looked up once.
pub struct Library {
    /// The namespace of `logging`.
    logging: Py<PyDict>,
    record: Py<PyAny>,
    logger: Py<PyType>,
    pattern: Py<PyType>,
}

impl Library {
    fn get(py: Python<'_>) -> Option<&Self> {
        static LIBRARY: PyOnceLock<Library> = PyOnceLock::new();
        let find = || -> PyResult<Self> {
            let logging = modules::import(py, "logging")?;
            let pattern = modules::import(py, "re")?.getattr("Pattern")?;
            Ok(Self {
                logging: logging.dict().unbind(),
                record: logging.getattr("LogRecord")?.unbind(),
                logger: logging.getattr("Logger")?.cast_into::<PyType>()?.unbind(),
                pattern: pattern.cast_into::<PyType>()?.unbind(),
            })
        };
        LIBRARY.get_or_try_init(py, find).ok()
    }

    /// Whether this is a Python function of `logging`, or of pytest's plugin of that name.
    fn owns(&self, function: Borrowed<'_, '_>) -> bool {
        let py = function.py();
        let Some(globals) = value(function, Field::Globals) else { return false };
        globals.is(&self.logging)
            || namespace(py, "_pytest.logging").is_some_and(|pytest| globals.is(&pytest))
    }

    /// Whether these methods of an object are the library's.
    fn owns_methods(&self, object: Borrowed<'_, '_>, names: &[&str]) -> bool {
        names.iter().all(|name| {
            own(object, name).is_none()
                && method(object, name).is_some_and(|found| self.owns(found.as_borrowed()))
        })
    }
}

/// The namespace of a loaded module.
fn namespace<'py>(py: Python<'py>, module: &str) -> Option<Object<'py>> {
    let modules = dict::modules(py)?;
    let module = entry(modules.as_borrowed(), module)?;
    let module = module.cast_exact::<PyModule>().ok()?;
    Some(module.dict().into_any())
}

/// Whether an object is a logger that dictionaries know by its identity.
#[must_use]
pub fn is_logger(object: Borrowed<'_, '_>) -> bool {
    let py = object.py();
    let plain = py.get_type::<PyAny>();
    let is_plain = |name: &str| {
        let name = PyString::intern(py, name);
        let name = name.as_any().as_borrowed();
        let expected = types::lookup(plain.as_borrowed(), name);
        let found = types::lookup(object.get_type().as_borrowed(), name);
        matches!((found, expected), (Some(found), Some(expected)) if found.is(&expected))
    };
    Library::get(py).is_some_and(|library| {
        generic::is_subtype(&object.get_type(), library.logger.bind(py))
            && is_plain("__hash__")
            && is_plain("__eq__")
    })
}

/// Where a record of this logger goes; `None`: to code that may do anything.
#[must_use]
pub fn of_logger(logger: Borrowed<'_, '_>) -> Option<Kept> {
    let py = logger.py();
    let library = Library::get(py)?;
    let logging = library.logging.bind_borrowed(py);
    let factory = entry(logging.as_any().as_borrowed(), "_logRecordFactory")?;
    if !library.owns_methods(logger, LOGGER)
        || !has_no_filters(logger)
        || !factory.is(&library.record)
    {
        return None;
    }
    let mut kept = Kept::new();
    let mut found = false;
    let mut at = logger.to_owned();
    for _ in 0..MOST {
        for handler in own(at.as_borrowed(), "handlers")?.cast_exact::<PyList>().ok()?.iter() {
            found = true;
            handler_of(library, handler.as_borrowed(), &mut kept)?;
        }
        let goes_on = own(at.as_borrowed(), "propagate")?;
        let goes_on = goes_on.cast_exact::<PyBool>().ok()?.is_true();
        let parent = own(at.as_borrowed(), "parent")?;
        if !goes_on || parent.is_none() {
            if !found {
                let last = entry(logging.as_any().as_borrowed(), "lastResort")?;
                handler_of(library, last.as_borrowed(), &mut kept)?;
            }
            return Some(kept);
        }
        at = parent;
    }
    None
}

fn dict_of<'py>(object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    match dict::instance_dict(object) {
        InstanceDict::Dict(dict) => Some(dict.to_owned().into_any()),
        InstanceDict::None | InstanceDict::Failed => None,
    }
}

fn has_no_filters(object: Borrowed<'_, '_>) -> bool {
    own(object, "filters")
        .is_some_and(|filters| filters.cast_exact::<PyList>().is_ok_and(|list| list.is_empty()))
}

fn handler_of(library: &Library, handler: Borrowed<'_, '_>, kept: &mut Kept) -> Option<()> {
    let py = handler.py();
    if !library.owns_methods(handler, HANDLER) || !has_no_filters(handler) {
        return None;
    }
    // Some set a stream's own `flush` here.
    let flush = own(handler, "flush").or_else(|| method(handler, "flush"))?;
    if !library.owns(flush.as_borrowed()) && !is_c_function(&flush) {
        return None;
    }
    let formatter = match own(handler, "formatter")? {
        formatter if formatter.is_none() => {
            entry(library.logging.bind_borrowed(py).as_any().as_borrowed(), "_defaultFormatter")?
        }
        formatter => formatter,
    };
    formatter_of(library, formatter.as_borrowed())?;
    let emit = method(handler, "emit").filter(|_| own(handler, "emit").is_none())?;
    if !library.owns(emit.as_borrowed()) {
        // Nothing but a list takes the record.
        kept.push(list_handlers::list_of(emit.as_borrowed(), handler)?);
        return Some(());
    }
    if let Some(records) = own(handler, "records") {
        kept.push(records.cast_exact::<PyList>().ok()?.as_ptr() as usize);
    }
    let stream = match own(handler, "stream") {
        Some(stream) => Some(stream),
        // The handler of last resort asks for it each time.
        None if method(handler, "stream").is_some() => entry_of_sys(py, "stderr"),
        None => None,
    };
    stream.is_none_or(|stream| stream.is_none() || is_c_stream(stream.as_borrowed())).then_some(())
}

fn entry_of_sys<'py>(py: Python<'py>, name: &str) -> Option<Object<'py>> {
    entry(namespace(py, "sys")?.as_borrowed(), name)
}

fn is_c_function(object: &Object<'_>) -> bool {
    object.is_exact_instance_of::<PyCFunction>()
}

fn formatter_of(library: &Library, formatter: Borrowed<'_, '_>) -> Option<()> {
    let converter = own(formatter, "converter").or_else(|| method(formatter, "converter"))?;
    let style = own(formatter, "_style")?;
    let style = style.as_borrowed();
    let is_plain = library.owns_methods(formatter, FORMATTER)
        && is_c_function(&converter)
        && library.owns_methods(style, &["format", "_format", "usesTime"])
        && own(style, "_defaults").is_none_or(|defaults| defaults.is_none())
        && own(style, "_fmt").is_some_and(|text| text.is_exact_instance_of::<PyString>());
    is_plain.then_some(())
}

/// Whether what is printed goes to C code alone.
#[must_use]
pub fn are_streams_plain(py: Python<'_>) -> bool {
    ["stdout", "stderr"].iter().all(|name| {
        entry_of_sys(py, name)
            .is_none_or(|stream| stream.is_none() || is_c_stream(stream.as_borrowed()))
    })
}

/// The stream that keeps prints from going to C code alone, in words.
#[must_use]
pub fn stream_in_python(py: Python<'_>) -> Option<String> {
    ["stdout", "stderr"].iter().find_map(|name| {
        let stream = entry_of_sys(py, name)?;
        let is_other = !stream.is_none() && !is_c_stream(stream.as_borrowed());
        let class = stream.get_type().name().ok()?;
        is_other.then(|| format!("print, while sys.{name} is written in Python: a {class}"))
    })
}

/// Whether an object is one of the streams that programs print to.
#[must_use]
pub fn is_standard_stream(object: Borrowed<'_, '_>) -> bool {
    let py = object.py();
    ["stdout", "stderr"].iter().any(|name| entry_of_sys(py, name).is_some_and(|it| it.is(&*object)))
}

/// Whether writing to a stream runs C code alone.
fn is_c_stream(stream: Borrowed<'_, '_>) -> bool {
    let is_c = |name: &str| {
        own(stream, name).is_none()
            && method(stream, name)
                .is_some_and(|found| generic::method_def(found.as_borrowed()).is_some())
    };
    let is_c_buffer = || match method(stream, "buffer") {
        None => true,
        Some(_) => stream
            .getattr(pyo3::intern!(stream.py(), "buffer"))
            .is_ok_and(|buffer| types::is_immutable(buffer.get_type().as_borrowed())),
    };
    is_c("write") && is_c("flush") && is_c_buffer()
}

/// Where warnings go; `None`: to code that may do anything.
#[must_use]
pub fn of_warnings(py: Python<'_>) -> Option<Kept> {
    let warnings = namespace(py, "warnings")?;
    let warnings = warnings.as_borrowed();
    let is_own = |name: &str| {
        let found = entry(warnings, name)?;
        let globals = value(found.as_borrowed(), Field::Globals)?;
        globals.is(&*warnings).then_some(found)
    };
    let is_original =
        |name: &str, original: &str| Some(entry(warnings, name)?.is(&entry(warnings, original)?));
    is_own("_showwarnmsg")?;
    if !is_original("showwarning", "_showwarning_orig")? {
        return None;
    }
    if is_own("_showwarnmsg_impl").is_some() {
        is_own("_formatwarnmsg")?;
        is_own("_formatwarnmsg_impl")?;
        let stream = entry_of_sys(py, "stderr")?;
        let is_plain = is_original("formatwarning", "_formatwarning_orig")?
            && (stream.is_none() || is_c_stream(stream.as_borrowed()));
        return is_plain.then(Kept::new);
    }
    // `warnings.catch_warnings(record=True)`
    let append = entry(warnings, "_showwarnmsg_impl")?;
    let list = generic::bound_receiver(append.as_borrowed())?;
    let list = list.cast_exact::<PyList>().ok()?;
    let is_append = generic::method_name(append.as_borrowed()) == Some("append");
    is_append.then(|| Kept::from_slice(&[list.as_ptr() as usize]))
}

/// The dictionaries and lists that say who is told of a record of this logger, or without one of a warning, and how: by
/// address.
#[must_use]
pub fn asked(py: Python<'_>, logger: Option<Borrowed<'_, '_>>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut add = |object: Option<Object<'_>>| found.extend(object.map(|it| it.as_ptr() as usize));
    add(namespace(py, "sys"));
    let Some(logger) = logger else {
        let warnings = namespace(py, "warnings");
        add(warnings.as_ref().and_then(|it| entry(it.as_borrowed(), "filters")));
        add(warnings);
        return found;
    };
    add(namespace(py, "logging"));
    let mut at = Some(logger.to_owned());
    for _ in 0..MOST {
        let Some(logger) = at.filter(|it| !it.is_none()) else { break };
        let logger = logger.as_borrowed();
        let handlers = own(logger, "handlers");
        let listed = handlers.as_ref().and_then(|it| it.cast_exact::<PyList>().ok());
        for handler in listed.into_iter().flatten() {
            let formatter = own(handler.as_borrowed(), "formatter");
            let style = formatter.as_ref().and_then(|it| own(it.as_borrowed(), "_style"));
            add(own(handler.as_borrowed(), "filters"));
            for part in [Some(handler), formatter, style].into_iter().flatten() {
                add(dict_of(part.as_borrowed()));
            }
        }
        add(handlers);
        add(own(logger, "filters"));
        add(dict_of(logger));
        at = own(logger, "parent");
    }
    found
}

/// Whether making and printing a warning of this class runs C code alone.
#[must_use]
pub fn is_plain_category(category: Borrowed<'_, '_>) -> bool {
    let py = category.py();
    let Ok(class) = category.cast::<PyType>() else { return false };
    class.get_type().is(py.get_type::<PyType>())
        && ["__new__", "__init__", "__str__", "__repr__", "__getattribute__"].iter().all(|name| {
            let name = PyString::intern(py, name);
            types::lookup(class.as_borrowed(), name.as_any().as_borrowed())
                .is_some_and(|found| !found.is_instance_of::<PyFunction>())
        })
}

/// Whether some filter may turn a warning into an exception, wherever it is said to come from.
#[must_use]
pub fn may_raise(text: Borrowed<'_, '_>, category: Borrowed<'_, '_>) -> bool {
    raises(text, category).unwrap_or(true)
}

/// As [`may_raise`]; `None`: it can't be told.
fn raises(text: Borrowed<'_, '_>, category: Borrowed<'_, '_>) -> Option<bool> {
    let py = text.py();
    let warnings = namespace(py, "warnings")?;
    let filters = entry(warnings.as_borrowed(), "filters")?;
    let category = category.cast::<PyType>().ok()?;
    for filter in filters.cast_exact::<PyList>().ok()?.iter() {
        let filter = filter.cast_exact::<PyTuple>().ok()?.clone();
        let [action, message, class, module, line] =
            [0, 1, 2, 3, 4].map(|at| filter.get_item(at).ok());
        let class = class?;
        if !generic::is_subtype(&category, class.cast::<PyType>().ok()?)
            || !is_about(py, message?.as_borrowed(), text)?
        {
            continue;
        }
        if !is_harmless(action?.as_borrowed()) {
            return Some(true);
        }
        if module?.is_none() && line?.extract::<i64>().ok()? == 0 {
            return Some(false);
        }
    }
    let default = entry(warnings.as_borrowed(), "defaultaction")?;
    Some(!is_harmless(default.as_borrowed()))
}

fn is_harmless(action: Borrowed<'_, '_>) -> bool {
    action.cast_exact::<PyString>().is_ok_and(|action| {
        ["ignore", "always", "default", "module", "once"].iter().any(|known| *action == **known)
    })
}

/// Whether a filter's message fits a text; `None`: only user code could tell.
fn is_about(py: Python<'_>, message: Borrowed<'_, '_>, text: Borrowed<'_, '_>) -> Option<bool> {
    if message.is_none() {
        return Some(true);
    }
    if message.is_exact_instance_of::<PyString>() {
        return message.eq(text).ok();
    }
    if !message.get_type().is(&Library::get(py)?.pattern) {
        return None;
    }
    let name = pyo3::intern!(py, "match");
    Some(!vectorcall::call_method(name, &[message, text], None).ok()?.is_none())
}
