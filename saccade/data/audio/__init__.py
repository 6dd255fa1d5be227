"""Audio: decoding, resampling, log-mel features and their augmentation."""
