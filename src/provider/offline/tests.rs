//! Questions put to small repositories, through a tiny executor of the three tools.
