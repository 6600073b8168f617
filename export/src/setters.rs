//! The setters of options.

/// Setters that store their argument in a field, as it is or as `Some`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($value:ident: $type:ty) => $($field:ident).+;)+) => {$(
        $(#[$attribute])*
        #[must_use]
        pub fn $name(mut self, $value: $type) -> Self {
            self.$($field).+ = $value.into();
            self
        }
    )+};
}
