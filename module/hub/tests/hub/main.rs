//! The client against the emulated edge device, over a real socket, TLS and MQTT. The files follow
//! the kinds of failure that a module must survive; the numbers in test names are those of the table
//! in the crate's README.

#[cfg(test)]
mod connect;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod methods;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod twin;
