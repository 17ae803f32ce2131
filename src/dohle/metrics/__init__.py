"""What operators measure: counts and times kept by the code that works, and Prometheus' format.

Pure: whoever counts does so on objects of its own, and nothing is gathered until somebody asks
(``dohle.server.metrics``).
"""
