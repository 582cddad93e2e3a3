from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0004_corrections'),
    ]

    operations = [
        migrations.AlterField(
            model_name='export',
            name='file_format',
            field=models.CharField(choices=[('focus', 'FOCUS 1.2 CSV'), ('focus-1.4', 'FOCUS 1.4 CSV'), ('parquet', 'FOCUS 1.4 parquet'), ('ubl', 'UBL 2.1 invoice'), ('facturx', 'Factur-X PDF'), ('journal', 'journal CSV'), ('beancount', 'Beancount')], max_length=16),
        ),
    ]
