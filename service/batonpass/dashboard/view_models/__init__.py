"""What pages show, computed from answers of the REST API. Everything here is pure: values in, values out."""
