//! The run's machine, driven from event to event.

mod asks;
mod bounds;
mod held;
mod people;
mod walks;
mod work;
