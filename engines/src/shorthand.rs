//! Macros for what types would repeat, in this crate and in those above it: the setters of builders, and `Debug` of types
//! with fields that have none.

/// Setters of a builder that store their argument in a field, as it is or as `Some`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($value:ident: $type:ty) => $($field:ident).+;)+) => {$(
        $(#[$attribute])*
        pub fn $name(mut self, $value: $type) -> Self {
            self.$($field).+ = $value.into();
            self
        }
    )+};
}

/// `Debug` as one line of text: `debug_as!(Type, it => "Type of {}", it.field)`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as {
    ($type:ty, $this:ident => $($text:tt)+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                write!(f, $($text)+)
            }
        }
    };
}

/// Objects of a C library, of which only the addresses are known.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$attribute])*
        #[repr(C)]
        pub(crate) struct $name {
            _opaque: [u8; 0],
        }
    )+};
}
