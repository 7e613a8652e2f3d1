//! What is looked up in PyTorch often, once something has imported it: without that, nothing is a tensor of its.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use stator_federated::dtype::DType;

use super::leaf::scalar_or_array;
use crate::federated::types::dtypes;

/// PyTorch.
pub struct Torch {
    module: Py<PyAny>,
    tensor: Py<PyType>,
    /// Its element types, as far as the language has them.
    dtypes: Vec<(Py<PyAny>, DType)>,
    from_numpy: Py<PyAny>,
    /// Whether autocast is on, for any device.
    autocast: Py<PyAny>,
    /// The layout of tensors that aren't sparse.
    strided: Py<PyAny>,
    /// How many tensors and others use a storage, by its address.
    uses: Py<PyAny>,
}

impl Torch {
    /// PyTorch, if something has imported it.
    pub fn get(py: Python<'_>) -> PyResult<Option<&Self>> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        if let Some(torch) = TORCH.get(py) {
            return Ok(Some(torch));
        }
        let modules = py.import("sys")?.getattr("modules")?;
        let Ok(module) = modules.get_item("torch") else { return Ok(None) };
        // It may be in the middle of its import.
        let Some(torch) = Self::of(&module)? else { return Ok(None) };
        Ok(Some(TORCH.get_or_init(py, || torch)))
    }

    fn of(module: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(tensor) = module.getattr_opt("Tensor")? else { return Ok(None) };
        let Some(from_numpy) = module.getattr_opt("from_numpy")? else { return Ok(None) };
        let Some(native) = module.getattr_opt("_C")? else { return Ok(None) };
        let Some(uses) = native.getattr_opt("_storage_Use_Count")? else { return Ok(None) };
        let Some(autocast) = native.getattr_opt("_is_any_autocast_enabled")? else {
            return Ok(None);
        };
        let Some(strided) = module.getattr_opt("strided")? else { return Ok(None) };
        let mut dtypes = Vec::new();
        for &of in DType::ALL {
            if let Some(found) = module.getattr_opt(of.name())? {
                dtypes.push((found.unbind(), of));
            }
        }
        Ok(Some(Self {
            module: module.clone().unbind(),
            tensor: tensor.cast_into::<PyType>()?.unbind(),
            dtypes,
            from_numpy: from_numpy.unbind(),
            autocast: autocast.unbind(),
            strided: strided.unbind(),
            uses: uses.unbind(),
        }))
    }

    /// The module.
    pub fn module<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.module.bind(py)
    }

    /// Whether autocast is on, for any device.
    pub fn is_any_autocast_on(&self, py: Python<'_>) -> PyResult<bool> {
        self.autocast.bind(py).call0()?.is_truthy()
    }

    /// Whether an object is a tensor, and of no class made of that.
    pub fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        object.is_exact_instance(self.tensor.bind(object.py()))
    }

    /// The element type of a tensor; `None` for one that the language doesn't have.
    pub fn dtype(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
        let found = tensor.getattr(intern!(tensor.py(), "dtype"))?;
        Ok(self.dtypes.iter().find(|(of, _)| found.is(of)).map(|(_, of)| *of))
    }

    /// What keeps the elements of a tensor from being read as they stand: it is sparse, or has none.
    pub fn unreadable(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let py = tensor.py();
        if tensor.getattr(intern!(py, "is_meta"))?.is_truthy()? {
            return Ok(Some("without data, on the device meta".to_owned()));
        }
        let layout = tensor.getattr(intern!(py, "layout"))?;
        let is_strided = layout.is(self.strided.bind(py));
        Ok((!is_strided)
            .then(|| format!("of the layout {layout}: `.to_dense()` makes another one")))
    }

    /// The tensor on the memory of an array.
    pub fn of_array<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.from_numpy.bind(array.py()).call1((array,))
    }

    /// How many tensors and others use a storage.
    pub fn uses(&self, storage: &Bound<'_, PyAny>) -> PyResult<i64> {
        let py = storage.py();
        self.uses.bind(py).call1((storage.getattr(intern!(py, "_cdata"))?,))?.extract()
    }
}

/// PyTorch's module, if something has imported it.
pub fn torch(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    Ok(Torch::get(py)?.map(|torch| torch.module(py).clone()))
}

/// Whether an object is a torch tensor.
pub fn is_torch(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.is_exact_instance(dtypes::ndarray(py)?) {
        return Ok(false);
    }
    match Torch::get(py)? {
        Some(torch) => Ok(torch.is_plain(object) || object.is_instance(torch.tensor.bind(py))?),
        None => Ok(false),
    }
}

/// A torch tensor's content as a NumPy scalar or array; nothing where NumPy has no such numbers.
pub fn torch_to_numpy<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = tensor.py();
    let torch = Torch::get(py)?.expect("it is one of its tensors");
    let tensor = tensor.call_method0("detach")?.call_method0("cpu")?;
    let tensor = tensor.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
    if torch.dtype(&tensor)? == Some(DType::BFloat16) {
        let Ok(bfloat16) = dtypes::to_numpy(py, DType::BFloat16) else { return Ok(None) };
        let bits = torch.module(py).getattr("int16")?;
        let bits = tensor.call_method1("view", (bits,))?.call_method0("numpy")?;
        return scalar_or_array(bits.call_method1("view", (bfloat16,))?).map(Some);
    }
    scalar_or_array(tensor.call_method0("numpy")?).map(Some)
}

/// The sizes of a tensor's dimensions: NumPy's or PyTorch's.
pub fn sizes(tensor: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let shape = tensor.getattr(intern!(tensor.py(), "shape"))?;
    match shape.cast::<PyTuple>() {
        Ok(shape) => shape.iter_borrowed().map(|size| size.extract()).collect(),
        Err(_) => shape.extract(),
    }
}
