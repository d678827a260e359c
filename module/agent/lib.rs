//! The product: touches the world, decides nothing.
