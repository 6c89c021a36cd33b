"""Torch modules behind the door: read before they meet a record, then run by Opacus. Everything here needs torch."""
