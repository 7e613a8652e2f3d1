//! What a room asks of the rooms above it.
//!
//! An attribute, an item, an operator or a number may be a function of the program's: Python's protocols call. What is
//! looked at may be a container that nobody has read so far. And whoever can't go on ends the trace. These are the only
//! ways up. Each interface is implemented once, by the room that does the work, for the recorder or its state.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{BinaryOp, CompareOp, Conversion};
use stator_graph::{Arg, Target};
use stator_guards::SourceId;

use super::call::Call;
use super::exits::Asks;
use super::state::{Noted, State};
use crate::breaks::Reason;

/// Of `reads`: what an object from outside holds.
pub(in crate::recorder) trait Looks {
    /// Guards an object that C code is about to read whole: containers of builtin types, deeply.
    /// Fails for objects whose reading could run code that isn't traced.
    fn adopt_deep(&mut self, object: Borrowed<'_, '_>) -> Noted<()>;

    /// As [`Looks::adopt_deep`], of what an iterator of this trace's goes over.
    fn adopt_reach(&mut self, iterator: Borrowed<'_, '_>) -> Noted<()>;

    /// Fails if the text of an object, or of what it holds, doesn't follow from what is guarded.
    fn know_text(&mut self, object: Borrowed<'_, '_>) -> Noted<()>;

    /// Guards the contents of a container as they were before this trace changed it.
    fn read_unread(&mut self, object: Borrowed<'_, '_>);
}

/// Of `reads`: what classes say of texts.
pub(in crate::recorder) trait Texts {
    /// Whether the text of a tensor is what PyTorch says, and not what somebody has set in its place.
    fn has_text_of_pytorch<'py>(&self, frame: &Frame<'py>, tensor: Borrowed<'_, 'py>) -> bool;
}

/// Of `effects`: reads that change what they read.
pub(in crate::recorder) trait Changes {
    /// The item at a missing key; `None`: nothing was done, and the trace can't go on behind it.
    fn missing_item<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// Whether the trace may advance an iterator as it likes: it has made it, or goes on in a generator from outside, from
    /// here on at the latest.
    fn is_own_iterator(&self, frame: &Frame<'_>, iterator: Borrowed<'_, '_>) -> bool;

    /// An iterator from outside is about to be advanced: reads what comes, takes it over, or ends the trace. What stands
    /// for the item that it gives, if something does.
    fn advance_outside<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>>;
}

/// Of `ending`: the trace's end.
pub(in crate::recorder) trait Ends {
    /// The trace can't go on with this instruction.
    fn stop(&self, frame: &Frame<'_>, reason: Reason, detail: impl Into<String>);

    /// The trace goes on in a generator from this instruction on: if no trace can begin where that will stand, the next one
    /// ends before this instruction.
    fn goes_on_in(&self, frame: &Frame<'_>, generator: &Object<'_>);

    /// What plain Python would have in the place of an object that a frame at a break was left with.
    fn plain_left<'py>(&self, held: Borrowed<'_, 'py>) -> Option<Object<'py>>;
}

/// Of `ending`: questions about data that a trace goes on behind.
pub(in crate::recorder) trait Decides {
    /// The answer to a question about data, if the trace can go on behind it; `asked` makes the node that answers
    /// with `True` or `False`. `None`: nothing was executed.
    fn decided<'py>(
        &self,
        frame: &Frame<'py>,
        asks: Asks,
        asked: impl FnOnce(&mut State) -> Noted<Arg>,
        native: impl FnOnce() -> Result<bool>,
    ) -> Option<Result<bool>>;

    /// Whether all that waits for `frame`, whose instruction is untouched, is C code before which there is a way out: what
    /// the frame returns that code alone is given.
    fn is_called_around(&self, frame: &Frame<'_>) -> bool;

    /// Runs C code for the current instruction. What is asked meanwhile leaves the trace before it.
    fn with_way_around<T>(&self, frame: &Frame<'_>, run: impl FnOnce() -> Result<T>) -> Result<T>;
}

/// Of `operations`: what the graph is given.
pub(crate) trait Arguments {
    /// An argument of an operation as the graph holds it.
    fn graph_arg(&mut self, object: Borrowed<'_, '_>) -> Noted<Arg>;

    /// Reads an entry of an outside dictionary, or an element of a list, that code within a node has left there, by a node;
    /// false: nobody may look.
    fn take_left(
        &mut self,
        container: Borrowed<'_, '_>,
        source: SourceId,
        key: Borrowed<'_, '_>,
        value: Borrowed<'_, '_>,
    ) -> Noted<bool>;
}

/// Of `operations`: items and attributes of tensors are operations.
pub(in crate::recorder) trait Operations {
    /// Executes a tensor operation with recording off and appends its node.
    fn operation<'py>(
        &self,
        frame: &Frame<'py>,
        target: impl FnOnce(&mut State) -> Target,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        execute: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>>;
}

/// Of `operations`: what is asked of NumPy's arrays and scalars. `None`: it's something else, or the trace can't go on so.
pub(in crate::recorder) trait ArrayValues {
    /// An item of an array whose size doesn't depend on data.
    fn item_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// `array[key] = value`.
    fn set_item_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Result<()>>;

    /// The items along an array's first dimension, as a tuple.
    fn rows_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// Arrays that an operation on tensors is given: those from outside are inputs of the graph from here on.
    fn know_arrays(&self, frame: &Frame<'_>, objects: &[Borrowed<'_, '_>]);

    /// What an attribute of an array is, if it follows from what is known of it.
    fn attribute_of_array<'py>(
        &self,
        frame: &Frame<'py>,
        array: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// A method of an array that the table has.
    fn method_of_array<'py>(
        &self,
        array: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>>;

    /// An object with Python's numbers where this one has scalars.
    fn with_plain_numbers<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>>;

    /// An index with Python's integers where this one has scalars. Other scalars are none, and errors name their types.
    fn with_plain_places<'py>(
        &self,
        frame: &Frame<'py>,
        index: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>>;
}

/// Of `operations`: what is asked of sparse tensors. `None`: it's something else, or follows from their elements.
pub(in crate::recorder) trait SparseValues {
    /// An attribute of a sparse tensor that follows from its description.
    fn attribute_of_sparse<'py>(
        &self,
        tensor: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// A method of a sparse tensor that makes an operation of the table.
    fn method_of_sparse<'py>(
        &self,
        tensor: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>>;
}

/// Of `operations`: decimals, dates, spans of time and such.
pub(in crate::recorder) trait PlainValues {
    /// Whether an object is such a value, of which nodes compute.
    fn is_value(&self, object: Borrowed<'_, '_>) -> bool;

    /// What an operator makes of such values and constants.
    fn value_operator<'py>(
        &self,
        frame: &Frame<'py>,
        names: &[&'static str],
        operands: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>>;

    /// An attribute of such a value that is a number.
    fn attribute_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// The truth of such a value: a decision.
    fn truth_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>>;

    /// `float`, `round` and such of such a value.
    fn scalar_of_value<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>>;

    /// The text of such a value: a conversion as `FORMAT_VALUE` numbers it, or a format.
    fn text_of_value<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>>;
}

/// Of `calls`: calls of the program's objects.
pub(in crate::recorder) trait Calls {
    /// Calls any object.
    fn call_object<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>>;

    /// Calls a Python function whose frame is traced.
    fn call_python<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>>;

    /// Ends the trace if C code is given a callable that reads what no guard speaks of. Python
    /// functions are traced when they are entered; C functions must be ones that only compute.
    fn guard_callback(&self, frame: &Frame<'_>, argument: Borrowed<'_, '_>);
}

/// Of `calls`: special methods that are Python functions. `None`: C code is to do it.
pub(in crate::recorder) trait Protocols {
    /// A call of an operation that an object among its arguments takes over by its `__torch_function__`. `None`: none does,
    /// or several of different classes may.
    fn overridden<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>>;

    /// A binary operator; `names` are its methods: in place (if it is), plain, reflected.
    fn python_binary<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        names: &[&'static str],
        operands: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>>;

    /// A comparison; `names` are its method and the reflected one's.
    fn python_compare<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        names: &[&'static str],
        operands: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>>;

    /// A unary operator.
    fn python_unary<'py>(
        &self,
        frame: &Frame<'py>,
        name: &'static str,
        operand: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// `item in container`.
    fn python_contains<'py>(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>>;

    /// The truth value of an object.
    fn python_truth<'py>(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>>;

    /// `iter(iterable)`.
    fn python_iter<'py>(
        &self,
        frame: &Frame<'py>,
        iterable: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// The next item; `None` inside: there is none.
    fn python_next<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>>;
}

/// Of `calls`: methods whose result C code converts. `None`: C code is to do it all.
pub(in crate::recorder) trait Conversions {
    /// `len()` and `hash()`: what a method returns without arguments, converted.
    fn python_converted<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        name: &'static str,
        conversion: Conversion,
    ) -> Option<Result<Object<'py>>>;

    /// `len()` of an object: its length stays a number that varies.
    fn python_length<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;

    /// `str`, `repr` and `format`, as `FORMAT_VALUE` numbers them: 0 is `format`.
    fn python_text<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>>;

    /// A placeholder of an f-string.
    fn python_format<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>>;
}

/// Of `calls`: entries of outside dictionaries whose keys hash and compare as their parts do, or in Python.
pub(in crate::recorder) trait HashedKeys {
    /// What a dictionary holds at such a key; `None`: the key is found otherwise.
    fn entry_by_hash<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>>;

    /// As `entry_by_hash`, as `d[key]` asks: absence is an error.
    fn item_by_hash<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>>;
}
