"""What older key names mean: the section `reward_model`, entry by entry, and
`custom_reward_function`."""
