"""What people look at: pages that need nothing but themselves, and the parts they share."""
