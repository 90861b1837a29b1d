//! The table of types.

use std::sync::LazyLock;

use canopus_base::FastMap;

/// A Go struct.
#[derive(Debug)]
pub struct StructType {
    /// Package and name: `core/v1.Pod`.
    pub name: &'static str,
    /// In the order Go declares and encodes them.
    fields: Vec<Field>,
    by_json_name: FastMap<&'static str, usize>,
    by_go_name: FastMap<&'static str, usize>,
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    /// The name in JSON: `hostIP`.
    pub json_name: &'static str,
    /// The name in Go, which templates use: `HostIP`.
    pub go_name: &'static str,
    /// The type of the value.
    pub kind: FieldType,
    /// Whether an empty value is left out.
    pub omit_empty: bool,
    /// Whether a zero time is left out.
    pub omit_zero: bool,
    /// How a strategic merge treats a list.
    pub list_merge: ListMerge,
    /// Whether a strategic merge replaces a struct as a whole.
    pub replaced: bool,
}

/// How a strategic merge treats a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListMerge {
    /// The patch's list takes its place.
    Replace,
    /// Items are merged with those that have the same value under this key.
    ByKey(&'static str),
    /// Scalars are joined.
    Union,
}

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldType {
    /// `bool`.
    Bool,
    /// `int32`, and the other 32-bit integers.
    Int32,
    /// `int64`, and the other integers.
    Int64,
    /// `float64`.
    Float,
    /// `string`.
    String,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `metav1.Time`.
    Time,
    /// `[]byte`, in base64.
    Bytes,
    /// Whatever stands there.
    Any,
    /// A pointer.
    Pointer(Box<FieldType>),
    /// A slice.
    List(Box<FieldType>),
    /// A map with string keys.
    Map(Box<FieldType>),
    /// A struct, by its name.
    Struct(&'static str),
}

impl StructType {
    /// The fields in the order Go encodes them.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// A field by its name in JSON.
    pub fn field(&self, json_name: &str) -> Option<&Field> {
        self.by_json_name.get(json_name).map(|at| &self.fields[*at])
    }

    /// A field by its name in Go.
    pub fn go_field(&self, go_name: &str) -> Option<&Field> {
        self.by_go_name.get(go_name).map(|at| &self.fields[*at])
    }

    /// The name without its package.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

impl FieldType {
    /// The struct behind the type, through a pointer too.
    pub fn as_struct(&self) -> Option<&'static StructType> {
        match self {
            Self::Struct(name) => TABLE.get(name),
            Self::Pointer(inner) => inner.as_struct(),
            _ => None,
        }
    }

    /// The type in Go's words, for errors.
    pub fn go_name(&self) -> String {
        match self {
            Self::Bool => "bool".to_owned(),
            Self::Int32 => "int32".to_owned(),
            Self::Int64 => "int64".to_owned(),
            Self::Float => "float64".to_owned(),
            Self::String => "string".to_owned(),
            Self::Quantity => "resource.Quantity".to_owned(),
            Self::IntOrString => "intstr.IntOrString".to_owned(),
            Self::Time => "v1.Time".to_owned(),
            Self::Bytes => "[]uint8".to_owned(),
            Self::Any => "interface {}".to_owned(),
            Self::Pointer(inner) => inner.go_name(),
            Self::List(inner) => format!("[]{}", inner.go_name()),
            Self::Map(inner) => format!("map[string]{}", inner.go_name()),
            Self::Struct(name) => name.rsplit('/').next().unwrap_or(name).to_owned(),
        }
    }
}

pub(super) struct Table {
    types: FastMap<&'static str, StructType>,
}

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("types.txt")));

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<&StructType> {
        self.types.get(name)
    }

    /// A type that the table is generated for.
    pub(super) fn expect(&self, name: &str) -> &StructType {
        self.get(name).expect("the embedded table has this type")
    }

    fn read(text: &'static str) -> Self {
        let mut types = FastMap::default();
        let mut open: Option<(&'static str, Vec<Field>)> = None;
        for line in text.lines() {
            match line.strip_prefix('\t') {
                Some(field) => {
                    if let Some((_, fields)) = &mut open {
                        fields.extend(read_field(field));
                    }
                }
                None => {
                    if let Some((name, fields)) = open.replace((line, Vec::new())) {
                        types.insert(name, StructType::new(name, fields));
                    }
                }
            }
        }
        if let Some((name, fields)) = open {
            types.insert(name, StructType::new(name, fields));
        }
        Self { types }
    }
}

impl StructType {
    fn new(name: &'static str, fields: Vec<Field>) -> Self {
        let by_json_name = fields.iter().enumerate().map(|(at, field)| (field.json_name, at)).collect();
        let by_go_name = fields.iter().enumerate().map(|(at, field)| (field.go_name, at)).collect();
        Self { name, fields, by_json_name, by_go_name }
    }
}

fn read_field(line: &'static str) -> Option<Field> {
    let mut words = line.split(' ');
    let (json_name, go_name, kind) = (words.next()?, words.next()?, words.next()?);
    let mut field = Field {
        json_name,
        go_name,
        kind: read_type(kind),
        omit_empty: false,
        omit_zero: false,
        list_merge: ListMerge::Replace,
        replaced: false,
    };
    for word in words {
        if word == "omitempty" {
            field.omit_empty = true;
        } else if word == "omitzero" {
            field.omit_zero = true;
        } else if let Some(strategies) = word.strip_prefix("patch:") {
            for strategy in strategies.split(',') {
                match strategy {
                    "merge" => field.list_merge = ListMerge::Union,
                    "replace" => field.replaced = true,
                    _ => {}
                }
            }
        } else if let Some(key) = word.strip_prefix("key:")
            && field.list_merge == ListMerge::Union
        {
            field.list_merge = ListMerge::ByKey(key);
        }
    }
    Some(field)
}

fn read_type(text: &'static str) -> FieldType {
    if let Some(inner) = text.strip_prefix('*') {
        return FieldType::Pointer(Box::new(read_type(inner)));
    }
    if let Some(inner) = text.strip_prefix("[]") {
        return FieldType::List(Box::new(read_type(inner)));
    }
    if let Some(inner) = text.strip_prefix("map:") {
        return FieldType::Map(Box::new(read_type(inner)));
    }
    match text {
        "bool" => FieldType::Bool,
        "int32" | "uint16" | "uint32" | "int16" | "uint8" | "int8" => FieldType::Int32,
        "int" | "int64" | "uint64" => FieldType::Int64,
        "float64" => FieldType::Float,
        "string" => FieldType::String,
        "quantity" => FieldType::Quantity,
        "intOrString" => FieldType::IntOrString,
        "time" => FieldType::Time,
        "bytes" => FieldType::Bytes,
        "any" => FieldType::Any,
        name => FieldType::Struct(name),
    }
}
