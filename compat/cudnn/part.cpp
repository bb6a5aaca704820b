// Owns nothing: a part of libcudnn that leads to the whole, for loaders that look for it by name.
