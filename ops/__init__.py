"""What operators look with: doctor, certificates, top, profiles, switch ports, versions."""
