//! The images of dataflows.

use std::time::Duration;

use dora_node_api::arrow_v59::array::{
    Array, BinaryArray, LargeBinaryArray, LargeStringArray, StringArray, StructArray, UInt8Array, UInt32Array,
};
use dora_node_api::{MetadataParameters, get_integer_param, get_string_param};
use ocelli::{Error, ErrorKind, Result};
use ocelli_robot::camera::{ENCODINGS, Pixels};

/// An image, borrowed from the message.
#[derive(Debug)]
pub enum InputImage<'a> {
    /// Pixels.
    Pixels(Pixels<'a>),
    /// A file: JPEG, PNG, WebP.
    File(&'a [u8]),
}

impl<'a> InputImage<'a> {
    /// The image of a message, without a copy:
    ///
    /// - `std/media/v1/Image`, a struct with `width`, `height`, `encoding` and `data`; the encoding may be that of a file;
    /// - `std/media/v1/CompressedImage`, the bytes of a file;
    /// - bytes with `width`, `height` and `encoding` in the metadata, as the cameras of dora's hub send them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] for anything else.
    pub fn of(array: &'a dyn Array, metadata: &'a MetadataParameters, time: Duration) -> Result<Self> {
        if let Some(image) = array.as_any().downcast_ref::<StructArray>() {
            one(image)?;
            let side = |name| number(field(image, name)?, name);
            let size = (side("width")?, side("height")?);
            let encoding = text(field(image, "encoding")?)?;
            return Ok(Self::encoded(encoding, size, bytes(field(image, "data")?)?, time));
        }
        if let Some(bytes) = array.as_any().downcast_ref::<UInt8Array>() {
            let encoding = get_string_param(metadata, "encoding")
                .ok_or_else(|| invalid("image in bytes: expected its encoding in the metadata".into()))?;
            let side = |name| {
                let side = get_integer_param(metadata, name).and_then(|side| u32::try_from(side).ok());
                side.ok_or_else(|| invalid(format!("image in bytes: expected its {name} in the metadata")))
            };
            let size = if is_file(encoding) { (0, 0) } else { (side("width")?, side("height")?) };
            return Ok(Self::encoded(encoding, size, bytes.values(), time));
        }
        one(array)?;
        bytes(array).map(Self::File)
    }

    fn encoded(encoding: &'a str, size: (u32, u32), data: &'a [u8], time: Duration) -> Self {
        if is_file(encoding) {
            Self::File(data)
        } else {
            Self::Pixels(Pixels::packed(encoding, size, data, time))
        }
    }
}

fn is_file(encoding: &str) -> bool {
    !ENCODINGS.contains(&encoding) && ["jpeg", "jpg", "png", "webp"].contains(&&*encoding.to_lowercase())
}

fn one(array: &dyn Array) -> Result<()> {
    match array.len() {
        1 => Ok(()),
        several => Err(invalid(format!("message with {several} images: expected one"))),
    }
}

fn field<'a>(image: &'a StructArray, name: &str) -> Result<&'a dyn Array> {
    let column = image.column_by_name(name).map(AsRef::as_ref);
    column
        .filter(|column| column.is_valid(0))
        .ok_or_else(|| invalid(format!("image without {name}: expected width, height, encoding and data")))
}

fn number(array: &dyn Array, name: &str) -> Result<u32> {
    let number = array.as_any().downcast_ref::<UInt32Array>().map(|number| number.value(0));
    number.ok_or_else(|| invalid(format!("{name} of the type {}: expected UInt32", array.data_type())))
}

fn text(array: &dyn Array) -> Result<&str> {
    let array = array.as_any();
    let text = array.downcast_ref::<StringArray>().map(|text| text.value(0));
    let text = text.or_else(|| array.downcast_ref::<LargeStringArray>().map(|text| text.value(0)));
    text.ok_or_else(|| invalid("encoding: expected a text (Utf8)".into()))
}

fn bytes(array: &dyn Array) -> Result<&[u8]> {
    let any = array.as_any();
    let bytes = any.downcast_ref::<LargeBinaryArray>().map(|bytes| bytes.value(0));
    let bytes = bytes.or_else(|| any.downcast_ref::<BinaryArray>().map(|bytes| bytes.value(0)));
    bytes.ok_or_else(|| {
        let found = array.data_type();
        invalid(format!("image of the type {found}: expected std/media/v1/Image or CompressedImage"))
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dora_node_api::Parameter;
    use dora_node_api::arrow_v59::array::ArrayRef;
    use ocelli_robot::camera;

    use super::*;

    fn image(encoding: &str, width: u32, data: &[u8]) -> StructArray {
        let columns: [(&str, ArrayRef); 4] = [
            ("width", Arc::new(UInt32Array::from(vec![width]))),
            ("height", Arc::new(UInt32Array::from(vec![2]))),
            ("encoding", Arc::new(StringArray::from(vec![encoding]))),
            ("data", Arc::new(LargeBinaryArray::from_vec(vec![data]))),
        ];
        StructArray::try_from(columns.map(|(name, column)| (name, column)).to_vec())
            .expect("columns of one row")
    }

    #[test]
    fn the_frame_is_the_buffer_of_the_message() {
        let array = image("rgb8", 2, &[7; 12]);
        let column = array.column_by_name("data").expect("it has data");
        let buffer = column.as_any().downcast_ref::<LargeBinaryArray>().expect("bytes").value_data();
        let none = MetadataParameters::new();
        let Ok(InputImage::Pixels(pixels)) = InputImage::of(&array, &none, Duration::ZERO) else {
            panic!("pixels");
        };
        let mut converted = Vec::new();
        let frame = camera::view(pixels, &mut converted).expect("enough pixels");
        assert_eq!(frame.data.as_ptr(), buffer.as_ptr());
        assert_eq!((frame.width, frame.height, frame.stride, frame.data.len()), (2, 2, 6, 12));
        assert!(converted.is_empty());

        let bytes = UInt8Array::from(vec![7; 8]);
        let metadata = MetadataParameters::from([
            ("encoding".to_owned(), Parameter::String("mono8".into())),
            ("width".to_owned(), Parameter::Integer(4)),
            ("height".to_owned(), Parameter::Integer(2)),
        ]);
        let Ok(InputImage::Pixels(pixels)) = InputImage::of(&bytes, &metadata, Duration::ZERO) else {
            panic!("pixels");
        };
        assert_eq!((pixels.data.as_ptr(), pixels.step), (bytes.values().as_ptr(), 4));
    }

    #[test]
    fn files_are_known_by_their_encoding_and_what_is_no_image_is_named() {
        let none = MetadataParameters::new();
        let compressed = LargeBinaryArray::from_vec(vec![b"file"]);
        let files: [&dyn Array; 3] =
            [&compressed, &image("JPEG", 2, b"file"), &BinaryArray::from_vec(vec![b"file"])];
        for file in files {
            assert!(matches!(InputImage::of(file, &none, Duration::ZERO), Ok(InputImage::File(b"file"))));
        }
        let several = LargeBinaryArray::from_vec(vec![b"file", b"file"]);
        let nameless = StructArray::try_from(vec![("x", Arc::new(UInt32Array::from(vec![1])) as ArrayRef)])
            .expect("a row");
        let cases: [(&dyn Array, &str); 4] = [
            (&UInt8Array::from(vec![1]), "expected its encoding in the metadata"),
            (&several, "message with 2 images"),
            (&nameless, "image without width"),
            (&UInt32Array::from(vec![1]), "image of the type UInt32"),
        ];
        for (array, part) in cases {
            let error = InputImage::of(array, &none, Duration::ZERO).expect_err("no image").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
