//! Options of commands, described to the parser once their command is typed: there are hundreds, and describing all takes half a
//! megabyte of memory, each time that the program starts.

use clap::builder::{Resettable, StyledStr};
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::ops::Deref;

/// What a command takes, described late.
pub struct Late<A>(Box<A>);

impl<A> Deref for Late<A> {
    type Target = A;
    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A: FromArgMatches> FromArgMatches for Late<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(|args| Self(Box::new(args)))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: Args> Args for Late<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| telling_the_same(command, A::augment_args))
    }
    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| telling_the_same(command, A::augment_args_for_update))
    }
}

/// What describes options also says what their type is for; a command says that itself.
fn telling_the_same(command: Command, describe: fn(Command) -> Command) -> Command {
    let (about, long) = (command.get_about().cloned(), command.get_long_about().cloned());
    let told = |text: Option<StyledStr>| text.map_or(Resettable::Reset, Resettable::Value);
    describe(command).about(told(about)).long_about(told(long))
}
