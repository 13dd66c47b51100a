"""What is hidden or changed in a text for a model to restore: `tokens` masks single ones or whole words."""
