//! cuDNN's backend (graph) API: descriptors with attributes, as a thin owner of each.

use super::failure;
use crate::DeviceError;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t as Raw,
    cudnnBackendDescriptorType_t as Kind, cudnnStatus_t,
};
use std::ffi::{CStr, c_char, c_void};

/// Turns a status into an error with the library's own words.
pub fn check(status: cudnnStatus_t, call: &str) -> Result<(), DeviceError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0 as c_char; 256];
    // SAFETY: the buffer's length is passed; cuDNN terminates the text.
    let words = unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_string_lossy().replace('\n', " ")
    };
    Err(failure::call(call, format!("{status:?} {words}")))
}

/// An owned descriptor.
pub struct Descriptor(Raw);

impl Descriptor {
    /// An empty one of that kind.
    pub fn new(kind: Kind) -> Result<Self, DeviceError> {
        let mut raw: Raw = std::ptr::null_mut();
        // SAFETY: writes one pointer; destroyed in drop.
        check(unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut raw) }, "cudnnBackendCreateDescriptor")?;
        Ok(Self(raw))
    }

    /// The raw pointer, valid while this lives.
    pub fn raw(&self) -> Raw {
        self.0
    }

    /// Sets an attribute to an array of values whose Rust type matches `kind`.
    ///
    /// # Safety
    /// `T` must be what cuDNN reads for `kind`.
    unsafe fn set_array<T>(&self, name: Name, kind: Type, values: &[T]) -> Result<(), DeviceError> {
        // SAFETY: the caller promises the type; the count is that of the slice.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast::<c_void>())
        };
        check(status, &format!("cudnnBackendSetAttribute {name:?}"))
    }

    /// Sets whole numbers.
    pub fn set_i64(&self, name: Name, values: &[i64]) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_INT64 is i64.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_INT64, values) }
    }

    /// Sets a number.
    pub fn set_f32(&self, name: Name, value: f32) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_FLOAT is f32.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_FLOAT, &[value]) }
    }

    /// Sets device pointers.
    pub fn set_pointers(&self, name: Name, values: &[u64]) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_VOID_PTR is a pointer; device addresses are 64 bits wide.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_VOID_PTR, values) }
    }

    /// Sets other descriptors, which must outlive this one's use.
    pub fn set_descriptors(&self, name: Name, values: &[&Descriptor]) -> Result<(), DeviceError> {
        let raw: Vec<Raw> = values.iter().map(|d| d.0).collect();
        // SAFETY: CUDNN_TYPE_BACKEND_DESCRIPTOR is a descriptor's pointer.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw) }
    }

    /// Sets the library's handle.
    pub fn set_handle(&self, name: Name, handle: sys::cudnnHandle_t) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_HANDLE is a cudnnHandle_t.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_HANDLE, &[handle]) }
    }

    /// Sets a data type.
    pub fn set_data_type(&self, name: Name, value: sys::cudnnDataType_t) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_DATA_TYPE is a cudnnDataType_t.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_DATA_TYPE, &[value]) }
    }

    /// Sets convolution or cross-correlation.
    pub fn set_convolution_mode(&self, name: Name, value: sys::cudnnConvolutionMode_t) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_CONVOLUTION_MODE is a cudnnConvolutionMode_t.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[value]) }
    }

    /// Sets the kind of heuristics.
    pub fn set_heuristics(&self, name: Name, value: sys::cudnnBackendHeurMode_t) -> Result<(), DeviceError> {
        // SAFETY: CUDNN_TYPE_HEUR_MODE is a cudnnBackendHeurMode_t.
        unsafe { self.set_array(name, Type::CUDNN_TYPE_HEUR_MODE, &[value]) }
    }

    /// Makes it usable.
    pub fn finalize(self, what: &str) -> Result<Self, DeviceError> {
        // SAFETY: a live descriptor.
        check(unsafe { sys::cudnnBackendFinalize(self.0) }, &format!("cudnnBackendFinalize {what}"))?;
        Ok(self)
    }

    /// Reads up to `most` numbers of an attribute whose elements have `T`'s size.
    ///
    /// # Safety
    /// `T` must be what cuDNN writes for `kind`, valid for any bits.
    unsafe fn get_array<T: Copy + Default>(&self, name: Name, kind: Type, most: usize) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::default(); most];
        let mut count = 0i64;
        // SAFETY: room for `most` elements is passed with that count.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                kind,
                most as i64,
                &raw mut count,
                values.as_mut_ptr().cast::<c_void>(),
            )
        };
        check(status, &format!("cudnnBackendGetAttribute {name:?}"))?;
        values.truncate(usize::try_from(count).unwrap_or(0));
        Ok(values)
    }

    /// Reads whole numbers.
    pub fn get_i64(&self, name: Name, most: usize) -> Result<Vec<i64>, DeviceError> {
        // SAFETY: CUDNN_TYPE_INT64 is i64.
        unsafe { self.get_array(name, Type::CUDNN_TYPE_INT64, most) }
    }

    /// Reads numerical notes as their numbers.
    pub fn get_notes(&self, name: Name, most: usize) -> Result<Vec<u32>, DeviceError> {
        // SAFETY: CUDNN_TYPE_NUMERICAL_NOTE is a 32-bit enumeration; kept as a number, so any value is valid.
        unsafe { self.get_array(name, Type::CUDNN_TYPE_NUMERICAL_NOTE, most) }
    }

    /// Reads knob kinds as their numbers.
    pub fn get_knob_kind(&self, name: Name) -> Result<Option<u32>, DeviceError> {
        // SAFETY: CUDNN_TYPE_KNOB_TYPE is a 32-bit enumeration; kept as a number, so any value is valid.
        Ok(unsafe { self.get_array(name, Type::CUDNN_TYPE_KNOB_TYPE, 1) }?.first().copied())
    }

    /// Fills empty descriptors of a kind from an attribute: all there are, or at most `most`.
    pub fn get_descriptors(&self, name: Name, kind: Kind, most: Option<usize>) -> Result<Vec<Descriptor>, DeviceError> {
        let room = match most {
            Some(most) => most,
            None => self.count(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR)?,
        };
        let made = (0..room).map(|_| Descriptor::new(kind)).collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = made.iter().map(|d| d.0).collect();
        let mut count = 0i64;
        // SAFETY: room for that many descriptors, which cuDNN fills in place.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                Type::CUDNN_TYPE_BACKEND_DESCRIPTOR,
                room as i64,
                &raw mut count,
                raw.as_mut_ptr().cast::<c_void>(),
            )
        };
        check(status, &format!("cudnnBackendGetAttribute {name:?}"))?;
        let count = usize::try_from(count).unwrap_or(0).min(room);
        Ok(made.into_iter().take(count).collect())
    }

    /// How many elements an attribute has.
    fn count(&self, name: Name, kind: Type) -> Result<usize, DeviceError> {
        let mut count = 0i64;
        // SAFETY: no element is asked for; writes one number.
        let status =
            unsafe { sys::cudnnBackendGetAttribute(self.0, name, kind, 0, &raw mut count, std::ptr::null_mut()) };
        check(status, &format!("cudnnBackendGetAttribute {name:?}"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed here only.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
