//! `policy` from the outside: what each layer says, which one is heard, and that an explanation never says something else.

mod order;
mod rules;
mod scene;
