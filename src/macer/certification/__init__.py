"""CERTIFY and PREDICT: of tensors, of data sets into a journal, of image files."""
