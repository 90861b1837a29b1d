//! Expressions about callers and operations, encoded as they are put together: as messages they would be large, and moved
//! from one to the next at every step.

use std::marker::PhantomData;

use canopus_proto::Message;

use crate::pieces::{self, Pieces};

/// The fields that Envoy's permissions and principals have in common.
mod field {
    pub(super) const ALL_OF: u32 = 1;
    pub(super) const ONE_OF: u32 = 2;
    pub(super) const ANY: u32 = 3;
    pub(super) const NOT: u32 = 8;
    /// That of a set.
    pub(super) const TERMS: u32 = 1;
}

/// An expression that is a message of this type: a permission or principal of Envoy.
#[derive(Clone, Debug, PartialEq)]
pub struct Term<M> {
    fields: Pieces,
    of: PhantomData<fn() -> M>,
}

impl<M> Term<M> {
    /// Matches everything.
    pub(super) fn any() -> Self {
        let mut fields = Pieces::default();
        fields.flag(field::ANY);
        Self::new(fields)
    }

    /// Matches what all of the terms match.
    pub(super) fn all_of(terms: &[Self]) -> Self {
        Self::set(field::ALL_OF, terms)
    }

    /// Matches what one of the terms matches.
    pub(super) fn one_of(terms: &[Self]) -> Self {
        Self::set(field::ONE_OF, terms)
    }

    /// Matches what the term does not.
    pub(super) fn not(&self) -> Self {
        let mut fields = Pieces::default();
        fields.body(field::NOT, self.as_slice());
        Self::new(fields)
    }

    /// The fields of the message that it is.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.fields.as_slice()
    }

    fn new(fields: Pieces) -> Self {
        Self { fields, of: PhantomData }
    }

    fn set(field: u32, terms: &[Self]) -> Self {
        let size = terms.iter().map(|term| pieces::field_size(term.as_slice().len())).sum();
        let mut fields = Pieces::default();
        fields.header(field, size);
        terms.iter().for_each(|term| fields.body(field::TERMS, term.as_slice()));
        Self::new(fields)
    }
}

impl<M: Message + Default> Term<M> {
    /// The message that it is.
    pub fn to_message(&self) -> M {
        M::decode(self.as_slice()).expect("what was just encoded")
    }
}

/// One that looks at something.
impl<M: Message> From<M> for Term<M> {
    fn from(message: M) -> Self {
        Self::new(Pieces::of(&message))
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::rbac::v3::permission::{self, Rule};
    use canopus_proto::envoy::config::rbac::v3::principal::{self, Identifier};
    use canopus_proto::envoy::config::rbac::v3::{Permission, Principal};

    use super::*;

    #[test]
    fn expression_about_operations_is_the_message_it_stands_for() {
        let message = |rule| Permission { rule: Some(rule) };
        let (any, port) = (message(Rule::Any(true)), message(Rule::DestinationPort(80)));
        let (any_term, port_term) = (Term::any(), Term::from(port.clone()));
        let one_of = Term::one_of(&[any_term.clone(), port_term]);
        let rules = permission::Set { rules: vec![any.clone(), port] };
        assert_eq!(one_of.to_message(), message(Rule::OrRules(rules.clone())));
        let not = message(Rule::NotRule(Box::new(message(Rule::OrRules(rules)))));
        assert_eq!(one_of.not().to_message(), not);
        let all_of = permission::Set { rules: vec![any, not] };
        assert_eq!(Term::all_of(&[any_term, one_of.not()]).to_message(), message(Rule::AndRules(all_of)));
    }

    #[test]
    fn expression_about_callers_is_the_message_it_stands_for() {
        let message = |identifier| Principal { identifier: Some(identifier) };
        let any = message(Identifier::Any(true));
        let not = message(Identifier::NotId(Box::new(any.clone())));
        let ids = principal::Set { ids: vec![any.clone(), not.clone()] };
        let terms = [Term::any(), Term::<Principal>::any().not()];
        assert_eq!(Term::one_of(&terms).to_message(), message(Identifier::OrIds(ids.clone())));
        assert_eq!(Term::all_of(&terms).to_message(), message(Identifier::AndIds(ids)));
    }
}
