"""What pages show, worked out from answers of the REST API. Everything here is pure: values in, values out."""
