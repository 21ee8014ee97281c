"""Tools for operators: doctor, certificates, top, profiles, switch ports, versions."""
