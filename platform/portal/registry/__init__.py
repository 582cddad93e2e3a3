"""What is measured and at what price: systems, models, model mixes, price books."""
