// Runs before the first paint: the saved colours, if any were chosen.
try {
  const theme = localStorage.getItem("gatehouse.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* no storage: the system's colours */ }
