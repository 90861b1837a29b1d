//! Expressions about callers and operations, encoded as they are put together: as messages they would be large, and moved
//! from one to the next at every step.

use canopus_proto::Message;
use canopus_proto::envoy::config::rbac::v3::{Permission, Principal, permission, principal};
use canopus_proto::fields;
use canopus_proto::wire::{Bool, EncodedFields, Explicit, Field, Nested, ProtoWriter};

/// A message that is a boolean expression: a permission or a principal of Envoy.
pub trait TermMessage: Sized {
    /// The message that holds the operands of a conjunction or disjunction.
    type Set;

    /// Holds if all terms of the set do.
    const ALL_OF: Field<Self, Nested<Self::Set>, Explicit>;
    /// Holds if one term of the set does.
    const ONE_OF: Field<Self, Nested<Self::Set>, Explicit>;
    /// Holds always.
    const ANY: Field<Self, Bool, Explicit>;
    /// Holds if the term does not.
    const NOT: Field<Self, Nested<Self>, Explicit>;
    /// The terms of a set.
    const TERMS: Field<Self::Set, Nested<Self>, Explicit>;
}

impl TermMessage for Permission {
    type Set = permission::Set;

    const ALL_OF: Field<Self, Nested<Self::Set>, Explicit> = fields::permission::AND_RULES;
    const ONE_OF: Field<Self, Nested<Self::Set>, Explicit> = fields::permission::OR_RULES;
    const ANY: Field<Self, Bool, Explicit> = fields::permission::ANY;
    const NOT: Field<Self, Nested<Self>, Explicit> = fields::permission::NOT_RULE;
    const TERMS: Field<Self::Set, Nested<Self>, Explicit> = fields::permission_set::RULES;
}

impl TermMessage for Principal {
    type Set = principal::Set;

    const ALL_OF: Field<Self, Nested<Self::Set>, Explicit> = fields::principal::AND_IDS;
    const ONE_OF: Field<Self, Nested<Self::Set>, Explicit> = fields::principal::OR_IDS;
    const ANY: Field<Self, Bool, Explicit> = fields::principal::ANY;
    const NOT: Field<Self, Nested<Self>, Explicit> = fields::principal::NOT_ID;
    const TERMS: Field<Self::Set, Nested<Self>, Explicit> = fields::principal_set::IDS;
}

/// An expression, encoded as a message of this type.
#[derive(Debug)]
pub struct Term<M>(ProtoWriter<M>);

impl<M: TermMessage> Term<M> {
    /// Matches everything.
    pub(super) fn any() -> Self {
        let mut fields = ProtoWriter::default();
        fields.bool(M::ANY, true);
        Self(fields)
    }

    /// Matches what all of the terms match.
    pub(super) fn all_of(terms: &[Self]) -> Self {
        Self::set(M::ALL_OF, terms)
    }

    /// Matches what one of the terms matches.
    pub(super) fn one_of(terms: &[Self]) -> Self {
        Self::set(M::ONE_OF, terms)
    }

    /// Matches what the term does not.
    pub(super) fn not(&self) -> Self {
        let mut fields = ProtoWriter::default();
        fields.encoded(M::NOT, self);
        Self(fields)
    }

    fn set(field: Field<M, Nested<M::Set>, Explicit>, terms: &[Self]) -> Self {
        let size = terms.iter().map(|term| M::TERMS.size(term.0.len())).sum();
        let mut fields = ProtoWriter::with_capacity(field.size(size));
        fields.nested_of_exactly(field, size, |set| {
            terms.iter().for_each(|term| set.encoded(M::TERMS, term));
        });
        Self(fields)
    }
}

impl<M> EncodedFields<M> for Term<M> {
    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl<M> Clone for Term<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> PartialEq for Term<M> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<M: Message + Default> Term<M> {
    /// The message that it is.
    pub fn to_message(&self) -> M {
        M::decode(self.0.as_slice()).expect("what was just encoded")
    }
}

/// One that looks at something.
impl<M: Message> From<M> for Term<M> {
    fn from(message: M) -> Self {
        Self(ProtoWriter::from_message(&message))
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
