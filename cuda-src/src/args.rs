//! Argument structs of kernels, declared once for Rust and for CUDA C++.

use std::fmt;

/// An address in device memory.
///
/// On the GPU it is a CUDA device pointer, in the emulator an address of this process. In CUDA C++ it is a
/// pointer of the type that the struct names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address no data has.
    pub const NULL: Self = Self(0);

    /// True for [`DevicePtr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on.
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePtr({:#x})", self.0)
    }
}

/// A type that may be a field of an argument struct: same size, alignment and meaning in Rust and CUDA C++.
///
/// # Safety
/// The type has no padding, every bit pattern is a value of it, and it is laid out as the C++ type of the
/// same name in `simt.cuh`, or as the struct whose text [`KernelArgs::CUDA`] gives.
pub unsafe trait KernelField: Copy + Send + Sync + 'static {}

macro_rules! fields {
    ($($t:ty),*) => {
        $(
            // SAFETY: a plain number (or an address) without padding, named alike in simt.cuh.
            unsafe impl KernelField for $t {}
        )*
    };
}
fields!(
    i8, i16, i32, i64, i128, u8, u16, u32, u64, u128, f32, f64, DevicePtr
);

// SAFETY: arrays add no padding and are laid out alike in both languages.
unsafe impl<T: KernelField, const N: usize> KernelField for [T; N] {}

/// A struct declared by [`kernel_args!`](crate::kernel_args).
pub trait KernelArgs: KernelField {
    /// The struct in CUDA C++, followed by assertions that its size and offsets are those of the Rust struct.
    /// Comes after `#include "simt.cuh"`.
    const CUDA: &'static str;

    /// The bytes a launch passes to the kernel.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: a KernelField has no padding, so all its bytes are initialised; the lifetime is self's.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// Declares argument structs of kernels once for both languages.
///
/// Each struct becomes a `#[repr(C)]` Rust struct with the derives `Clone, Copy, Debug` and an implementation
/// of [`KernelArgs`](crate::KernelArgs), whose `CUDA` is the C++ text; the constant is also an inherent
/// `Name::CUDA`. Fields are the numbers of `simt.cuh` by their Rust names, [`DevicePtr`](crate::DevicePtr)
/// (with `as "u32*"` to name the C++ type), arrays of these, or another struct declared by this macro, whose
/// text must come first.
///
/// Padding is refused at compile time: order fields by size, or fill up with a field such as `pad: u32`.
///
/// ```
/// use warpline_cuda::{kernel_args, DevicePtr};
/// kernel_args! {
///     /// Arguments of `fill`.
///     pub struct FillArgs {
///         /// First element.
///         pub out: DevicePtr as "u32*",
///         /// Number of elements.
///         pub count: u64,
///     }
/// }
/// assert!(FillArgs::CUDA.contains("u32* out;"));
/// ```
#[macro_export]
macro_rules! kernel_args {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:tt $(as $cuda:literal)? ),+ $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        $vis struct $name {
            $( $(#[$field_meta])* $field_vis $field: $type, )+
        }

        const _: () = assert!(
            size_of::<$name>() == 0 $( + size_of::<$type>() )+,
            concat!(
                "kernel argument struct ", stringify!($name),
                " has padding: order its fields by size or add a padding field"
            ),
        );

        // SAFETY: repr(C), every field a KernelField, and the assertion above excludes padding.
        unsafe impl $crate::KernelField for $name where $( $type: $crate::KernelField, )+ {}

        impl $name {
            /// The struct in CUDA C++ with assertions of its layout.
            pub const CUDA: &'static str = {
                const PARTS: &[$crate::__private::Part] = &[
                    $crate::__private::Part::Text(concat!(
                        "struct ", stringify!($name), " {\n",
                        $( $crate::kernel_args!(@declare $field $type $(as $cuda)?), )+
                        "};\nstatic_assert(sizeof(", stringify!($name), ") == "
                    )),
                    $crate::__private::Part::Number(size_of::<$name>()),
                    $crate::__private::Part::Text(concat!(
                        ", \"", stringify!($name), " must have the size of the Rust struct\");\n"
                    )),
                    $(
                        $crate::__private::Part::Text(concat!(
                            "static_assert(WL_OFFSETOF(", stringify!($name), ", ", stringify!($field), ") == "
                        )),
                        $crate::__private::Part::Number(std::mem::offset_of!($name, $field)),
                        $crate::__private::Part::Text(concat!(
                            ", \"", stringify!($name), "::", stringify!($field),
                            " must be where the Rust struct has it\");\n"
                        )),
                    )+
                ];
                const LENGTH: usize = $crate::__private::length(PARTS);
                const BYTES: [u8; LENGTH] = $crate::__private::concatenate(PARTS);
                match std::str::from_utf8(&BYTES) {
                    Ok(text) => text,
                    Err(_) => panic!("a kernel argument struct must have an ASCII declaration"),
                }
            };
        }

        impl $crate::KernelArgs for $name {
            const CUDA: &'static str = Self::CUDA;
        }
    )+};

    (@declare $field:ident [$type:ident; $count:expr] as $cuda:literal) => {
        concat!("    ", $cuda, " ", stringify!($field), "[", stringify!($count), "];\n")
    };
    (@declare $field:ident [$type:ident; $count:expr]) => {
        concat!("    ", stringify!($type), " ", stringify!($field), "[", stringify!($count), "];\n")
    };
    (@declare $field:ident $type:ident as $cuda:literal) => {
        concat!("    ", $cuda, " ", stringify!($field), ";\n")
    };
    (@declare $field:ident $type:ident) => {
        concat!("    ", stringify!($type), " ", stringify!($field), ";\n")
    };
}

/// What [`kernel_args!`](crate::kernel_args) expands to; not part of the interface.
#[doc(hidden)]
pub mod __private {
    /// One piece of a text built at compile time.
    #[derive(Clone, Copy)]
    pub enum Part {
        Text(&'static str),
        Number(usize),
    }

    const fn digits(mut value: usize) -> usize {
        let mut count = 1;
        while value >= 10 {
            value /= 10;
            count += 1;
        }
        count
    }

    /// Bytes that [`concatenate`] needs.
    pub const fn length(parts: &[Part]) -> usize {
        let (mut total, mut i) = (0, 0);
        while i < parts.len() {
            total += match parts[i] {
                Part::Text(text) => text.len(),
                Part::Number(value) => digits(value),
            };
            i += 1;
        }
        total
    }

    /// The parts one after the other, numbers in decimal.
    pub const fn concatenate<const N: usize>(parts: &[Part]) -> [u8; N] {
        let mut out = [0; N];
        let (mut at, mut i) = (0, 0);
        while i < parts.len() {
            match parts[i] {
                Part::Text(text) => {
                    let (bytes, mut j) = (text.as_bytes(), 0);
                    while j < bytes.len() {
                        out[at + j] = bytes[j];
                        j += 1;
                    }
                    at += bytes.len();
                }
                Part::Number(value) => {
                    let (count, mut rest, mut j) = (digits(value), value, 0);
                    while j < count {
                        out[at + count - 1 - j] = b'0' + (rest % 10) as u8;
                        rest /= 10;
                        j += 1;
                    }
                    at += count;
                }
            }
            i += 1;
        }
        out
    }
}
