//! Texts that many proxies say, kept once.

use std::sync::Arc;

use canopus_base::FastMap;

/// Stands for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u32);

/// Names and versions by number.
#[derive(Debug, Default)]
pub struct Names {
    ids: FastMap<Arc<str>, NameId>,
    texts: Vec<Arc<str>>,
}

impl Names {
    /// The number of a text.
    pub fn id(&mut self, text: &str) -> NameId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.texts.len()).expect("fewer than four thousand million names"));
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The text of a number.
    pub fn text(&self, id: NameId) -> &str {
        &self.texts[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let mut names = Names::default();
        let (a, b) = (names.id("a"), names.id("b"));
        assert_eq!(names.id("a"), a);
        assert_ne!(a, b);
        assert_eq!(names.text(b), "b");
    }
}
