//! Enums whose values have names.

/// Declares an enum, the array `ALL` of its values in the order of the declaration, and their
/// `name`s.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident {
            $( $(#[$of_value:meta])* $value:ident $(= $code:literal)? => $name:literal, )+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $type {
            $( $(#[$of_value])* $value $(= $code)?, )+
        }

        impl $type {
            /// Every value.
            #[allow(dead_code, reason = "not every enum needs its list")]
            pub const ALL: [$type; [$( $name ),+].len()] = [$( $type::$value ),+];

            /// The name of the value, in Kafka's spelling.
            pub const fn name(self) -> &'static str {
                match self {
                    $( $type::$value => $name, )+
                }
            }
        }
    };
}
