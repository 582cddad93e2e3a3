"""From metered usage to money: events, periods, savings, invoices, journal, exports."""
