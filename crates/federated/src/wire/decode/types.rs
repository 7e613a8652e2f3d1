//! The message `Type`.

use super::super::array::{read_dim, read_dtype};
use super::super::read::{Member, Message, Read, made};
use super::{Decoder, Labels, Place, Work};
use crate::Name;
use crate::error::{Class, Error};
use crate::placement::Placement;
use crate::types::{Field, Shape, Type};

/// What a type is built from, beside the types in it.
pub enum Parts {
    Struct(Box<[Option<Name>]>),
    Sequence,
    Function { parameter: bool },
    Federated { placement: Placement, all_equal: bool },
}

impl Decoder<'_> {
    pub fn read_type(&mut self, place: Place, message: &Message) -> Read<()> {
        let mut member = Member::none(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            if (1..=7).contains(&field.number) {
                member.set(field)?;
            }
        }
        let Member { number, message } = member;
        let at = message.at();
        match number {
            1 => self.read_function(place, &message),
            2 => self.read_struct(place, &message),
            3 => {
                let mut element = Message::missing(at);
                for field in message.fields(self.input) {
                    let field = field?;
                    if field.number == 1 {
                        element.merge(field)?;
                    }
                }
                self.push(place, at, Work::BuildType(Parts::Sequence));
                self.push_type(Place::Field("sequence.element"), element);
                Ok(())
            }
            4 => {
                let ty = self.tensor(&message)?;
                self.types.push(ty);
                Ok(())
            }
            5 => {
                let ty = self.abstract_type(&message)?;
                self.types.push(ty);
                Ok(())
            }
            6 => {
                self.types.push(Type::placement());
                Ok(())
            }
            7 => self.read_federated(place, &message),
            _ => made(at, Err(Error::new(Class::NotImplemented, "the type is of no kind we know"))),
        }
    }

    fn read_function(&mut self, place: Place, message: &Message) -> Read<()> {
        let mut parameter = Message::missing(message.at());
        let mut result = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => parameter.merge(field)?,
                2 => result.merge(field)?,
                _ => {}
            }
        }
        let parts = Parts::Function { parameter: !parameter.is_missing() };
        self.push(place, message.at(), Work::BuildType(parts));
        self.push_type(Place::Field("function.result"), result);
        if !parameter.is_missing() {
            self.push_type(Place::Field("function.parameter"), parameter);
        }
        Ok(())
    }

    fn read_struct(&mut self, place: Place, message: &Message) -> Read<()> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                let (name, value) = self.named(&Message::new(field.span()?))?;
                names.push(name);
                values.push(value);
            }
        }
        self.push(place, message.at(), Work::BuildType(Parts::Struct(names.into())));
        for (index, value) in values.into_iter().enumerate().rev() {
            self.push_type(Place::Item("struct.element", index), value);
        }
        Ok(())
    }

    fn tensor(&self, message: &Message) -> Read<Type> {
        let mut dtype = 0;
        let mut dims = Vec::new();
        let mut unknown_rank = false;
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => dtype = field.varint()?,
                2 => field.varints(self.input, |dim| dims.push(read_dim(dim)))?,
                3 => unknown_rank = field.varint()? != 0,
                _ => {}
            }
        }
        let dtype = read_dtype(dtype, message.at())?;
        let shape = if unknown_rank { Shape::unknown_rank() } else { Shape::new(dims) };
        Ok(Type::tensor(dtype, shape))
    }

    fn abstract_type(&mut self, message: &Message) -> Read<Type> {
        if self.labels == Labels::Refused {
            let what = "an abstract type stands for any type, and is the type of nothing";
            return made(message.at(), Err(Error::new(Class::NotImplemented, what)));
        }
        let mut label = Name::from("");
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                label = self.name(field.span()?)?;
            }
        }
        Ok(Type::abstract_type(label))
    }

    fn read_federated(&mut self, place: Place, message: &Message) -> Read<()> {
        let mut spec = Message::missing(message.at());
        let mut all_equal = false;
        let mut member = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => spec.merge(field)?,
                2 => all_equal = field.varint()? != 0,
                3 => member.merge(field)?,
                _ => {}
            }
        }
        let placement = self.placement_spec(&spec)?;
        let parts = Parts::Federated { placement, all_equal };
        self.push(place, message.at(), Work::BuildType(parts));
        self.push_type(Place::Field("federated.member"), member);
        Ok(())
    }

    fn placement_spec(&self, message: &Message) -> Read<Placement> {
        let mut member = Member::none(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            if matches!(field.number, 1 | 2) {
                member.set(field)?;
            }
        }
        match member.number {
            2 => self.placement(&member.message),
            _ => {
                let what = "a federated type says no placement";
                made(member.message.at(), Err(Error::new(Class::NotImplemented, what)))
            }
        }
    }

    /// The message `Placement`.
    pub fn placement(&self, message: &Message) -> Read<Placement> {
        let mut uri = "";
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                uri = field.span()?.text(self.input)?;
            }
        }
        let placement = Placement::from_uri(uri).ok_or_else(|| {
            Error::new(Class::Value, format!("there is no placement `{uri}`"))
                .expected(Placement::ALL.map(Placement::uri).join(" or "))
        });
        made(message.at(), placement)
    }

    pub fn build_type(&mut self, at: usize, parts: Parts) -> Read<()> {
        let mut next = || self.types.pop().expect("the types in it were read");
        let ty = match parts {
            Parts::Sequence => Type::sequence(next()),
            Parts::Function { parameter } => {
                let result = next();
                Ok(Type::function(parameter.then(next), result))
            }
            Parts::Federated { placement, all_equal } => {
                Type::federated(next(), placement, Some(all_equal))
            }
            Parts::Struct(names) => {
                let types = self.types.split_off(self.types.len() - names.len());
                let fields = names.into_iter().zip(types).map(|(name, ty)| Field { name, ty });
                Type::structure(fields.collect(), None)
            }
        };
        self.types.push(made(at, ty)?);
        Ok(())
    }
}
