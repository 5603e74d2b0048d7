"""Which failure is it: rules, their laws, and matching."""
